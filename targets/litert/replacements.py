"""Operators as others that litert_torch lowers right: functions of tensors, for torch's retrace.

Each takes what the operator takes, every argument, and returns NotImplemented where the
operator is fine as it is. All are exact for the values that torch itself promises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["replacements"]

aten = torch.ops.aten

Replacement = Callable[..., Any]


def _scaled(operator: Any) -> Replacement:
    """`add` and `sub` with `alpha`, which litert_torch refuses."""

    def replace(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        if alpha == 1:
            return NotImplemented
        return operator(x, y * alpha)

    return replace


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """On the last axis by TOPK_V2; the smallest are the largest of the reversed order."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    last = x.movedim(dim, -1)
    if not largest:
        last = _reversed(last)
    values, indices = torch.ops.tfl.topk_v2(last, k)
    if not largest:
        values = _reversed(values)
    return values.movedim(-1, dim), indices.to(torch.int64).movedim(-1, dim)


def _reversed(x: Tensor) -> Tensor:
    """Values in the opposite order, undone by itself, without overflow."""
    return -x if x.is_floating_point() else torch.bitwise_not(x)


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """TOPK_V2 of all keeps the first of equals first, so this sort is stable."""
    return _topk(x, x.shape[dim] if x.dim() else 1, dim, descending)


def _stable_sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    return _sort(x, dim, descending)


def replacements() -> dict[Any, Replacement]:
    """By operator."""
    return {
        aten.add.Tensor: _scaled(torch.add),
        aten.sub.Tensor: _scaled(torch.sub),
        aten.topk.default: _topk,
        aten.sort.default: _sort,
        aten.sort.stable: _stable_sort,
    }
