"""Operators that decide: where a last digit can change an index, an order or a branch."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch.fx import GraphModule

__all__ = ["break_ties", "decides"]

# They order values; elements that are exactly equal may come in any order.
_ORDERING = frozenset(
    (
        *("argmax", "argmin", "argsort", "kthvalue", "max", "median", "min", "mode", "msort"),
        *("sort", "topk"),
    )
)

# They turn a float into something that jumps.
_JUMPING = frozenset(
    (
        *("bucketize", "ceil", "eq", "floor", "floor_divide", "fmod", "ge", "gt", "heaviside"),
        *("le", "lt", "ne", "remainder", "round", "searchsorted", "sign", "trunc"),
    )
)

_CASTS = frozenset(("_to_copy", "to", "type_as"))

# Far below any value that matters, far above what float32 flushes to zero.
_BESIDE_ZERO = 2.0**-100


def _name(target: Any) -> str:
    return getattr(getattr(target, "overloadpacket", None), "__name__", "")


def decides(module: GraphModule) -> bool:
    """Whether the graph holds an operator that makes a decision from float values."""
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            name = _name(node.target)
            if name not in _ORDERING | _JUMPING | _CASTS or not node.all_input_nodes:
                continue
            source = node.all_input_nodes[0].meta.get("val")
            result = node.meta.get("val")
            if not isinstance(source, torch.Tensor) or not source.is_floating_point():
                continue
            to_integer = isinstance(result, torch.Tensor) and not result.is_floating_point()
            if name not in _CASTS or to_integer:
                return True
    return False


def break_ties(target: Any, args: tuple[Any, ...], key: str, ulps: float, sign: int) -> Any:
    """Arguments of an ordering operator, the values moved so that equal ones differ.

    Each element moves by a random share of `ulps` units in the last place, and
    by as little beside zero; the opposite `sign` orders every tie the other way.
    """
    if _name(target) not in _ORDERING or not args:
        return args
    values = args[0]
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        return args
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    share = torch.rand(values.shape, generator=generator, dtype=values.dtype) - 0.5
    reach = values.abs() * (torch.finfo(values.dtype).eps * ulps) + _BESIDE_ZERO
    moved = torch.where(values.isfinite(), values + sign * share * reach, values)
    return (moved, *args[1:])
