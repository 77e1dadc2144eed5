"""Whole numbers beyond int32, for runtimes that compute int64 in int32 and wrap around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["beyond_int32", "require_int32"]


def beyond_int32(
    program: ExportedProgram, runtime: str, *, outputs: bool = False
) -> list[tuple[Node, str]]:
    """Nodes that read a whole number which int32, in which `runtime` computes, lacks.

    `outputs`: also constants that the program returns as they are.
    """
    import torch

    from ..exporter.nodes import tensor_value

    aten = torch.ops.aten
    sentinels = (aten.slice.Tensor, aten.slice_scatter.default)  # "to the end" is 2^63 - 1
    read = ("call_function", "output") if outputs else ("call_function",)
    held = {
        spec.arg.name: (spec.target, {**program.state_dict, **program.constants}.get(spec.target))
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    found = []
    for node in program.graph.nodes:
        if node.op not in read or node.target in sentinels:
            continue
        leaves = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
        values = [v for item in (node, *leaves) if (v := tensor_value(item)) is not None]
        if node.op == "call_function" and any(map(_is_inexact, values)):
            continue  # computed as a float
        for item in leaves:
            if isinstance(item, int) and not -(2**31) <= item < 2**31:
                found.append((node, f"{item} is beyond int32, in which {runtime} computes int64"))
            name, tensor = held.get(getattr(item, "name", ""), ("", None))
            if tensor is None or tensor.dtype != torch.int64 or not tensor.numel():
                continue
            low, high = (int(v) for v in torch.aminmax(tensor))
            if low < -(2**31) or high >= 2**31:
                number = high if high >= 2**31 else low
                reason = f"{name} holds {number}, beyond int32, in which {runtime} computes int64"
                found.append((node, reason))
    return found


def require_int32(feed: Mapping[str, NDArray[Any]], runtime: str) -> None:
    """Refuse values of wide integers that `runtime` would wrap around.

    Raises:
        UsageError: names the input and the value.
    """
    for name, array in feed.items():
        if array.dtype.kind in "iu" and array.dtype.itemsize > 4 and array.size:
            for value in (int(array.min()), int(array.max())):
                if not -(2**31) <= value < 2**31:
                    raise UsageError(
                        f"input {name} holds {value}, and {runtime} computes int64 in int32",
                        hint="give values between -2^31 and 2^31 - 1",
                    )


def _is_inexact(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex
