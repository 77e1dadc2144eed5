"""Which operators the installed runtime has kernels for, by its own registry."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import tensor_value
from ..base import Unsupported
from ..unsupported import unsupported
from .native_log import native_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

__all__ = ["has_kernel", "lacking"]


@cache
def _registered() -> frozenset[str]:
    """Names like `aten::add.out`."""
    from executorch.runtime import Runtime

    with native_log():
        return frozenset(Runtime.get().operator_registry.operator_names)


def has_kernel(target: Any) -> bool:
    """Whether an ATen or edge operator can be run by a portable kernel as it is."""
    if not hasattr(target, "_schema"):
        return True  # arithmetic on sizes, getitem, higher-order operators
    if _name(target) in _registered():
        return True
    out = _out_variant(target)
    return out is not None and _name(out) in _registered()


def lacking(program: ExportedProgram) -> list[Unsupported]:
    """Operators of an edge program, those inside delegates apart, without a kernel."""
    return [unsupported(node, reason) for node, reason in _faulty(program.graph_module)]


def _faulty(module: GraphModule) -> Iterator[tuple[Node, str]]:
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule) or _is_delegated(part):
            continue
        for node in part.graph.nodes:
            if node.op != "call_function":
                continue
            if not has_kernel(node.target):
                yield node, "the runtime has no kernel for it"
            elif _is_volume_convolution(node):
                yield node, "the runtime's kernel takes 1-d and 2-d convolutions only"


def _is_volume_convolution(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name != "aten::convolution":
        return False
    value = tensor_value(node)
    return value is not None and value.dim() == 5


def _is_delegated(module: GraphModule) -> bool:
    return type(module).__name__ == "LoweredBackendModule"


def _name(target: Any) -> str:
    schema = target._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


@cache
def _out_variant(target: Any) -> Any:
    """The overload that writes to given memory, which is what kernels are registered for."""
    from executorch.exir.operator.convert import to_out_variant

    try:
        if hasattr(target, "to_out_variant"):
            return target.to_out_variant()
        return to_out_variant(target)[0]
    except (RuntimeError, AttributeError, AssertionError):
        # There is none, or exir's search is lost among overloads of numbers, as with pow.
        namespace, _, name = target._schema.name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        return getattr(packet, f"{target._schema.overload_name}_out", None)
