"""Operators that litert_torch or LiteRT's kernels are known to get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import argument, tensor_value
from ..base import Unsupported
from ..unsupported import unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["fault", "large_numbers"]

aten = torch.ops.aten

_DIVISIONS = (aten.div.Tensor_mode, aten.div.Scalar_mode)
_RANDOM = (
    *(aten.rand, aten.rand_like, aten.randn, aten.randn_like, aten.randint, aten.randint_like),
    *(aten.bernoulli, aten.multinomial, aten.normal, aten.randperm, aten.normal_functional),
)


def fault(node: Node) -> str:
    """Why a captured node would be converted wrongly; empty if it would not."""
    target: Any = node.target
    if getattr(target, "overloadpacket", None) in _RANDOM:
        return (
            "LiteRT would draw the same numbers, or others than torch; pass the noise as an input"
        )
    if "with_indices" in str(target) and any(user.args[1] == 1 for user in node.users):
        return "litert-torch gives 0 for every index"
    value = tensor_value(node)
    dtype = None if value is None else value.dtype
    rounded = target in _DIVISIONS and argument(node, "rounding_mode") is not None
    if rounded and dtype == torch.int64:
        return "LiteRT divides int64 as 32 bits; cast to int32, or to float32, before"
    whole = rounded or target is aten.floor_divide.default
    if whole and dtype == torch.uint8 and _is_negative(node.args[1]):
        return "litert-torch reads a negative divisor as uint8; cast to int32 before"
    return ""


def _is_negative(item: Any) -> bool:
    return isinstance(item, (int, float)) and item < 0


def large_numbers(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a decomposed program with a whole number that int32 does not hold.

    litert_torch 0.10 writes such numbers as int32, and they wrap. `full` alone does not.
    """
    return [
        unsupported(node, f"litert-torch would wrap the number {number} to 32 bits")
        for node in program.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
        if node.target not in (aten.full.default, aten.slice.Tensor, aten.slice_scatter.default)
        for number in (*node.args, *node.kwargs.values())
        if isinstance(number, int) and not -(2**31) <= number < 2**31
    ]
