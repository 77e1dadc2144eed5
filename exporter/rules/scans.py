"""Cumulative operators as parallel scans: log2(n) steps of one operation on shifted halves.

Hillis and Steele, "Data parallel algorithms", 1986. The axis has a known size, the others need not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["SCAN_RULES", "scan"]

aten = torch.ops.aten

State = tuple[Tensor, ...]


def scan(combine: Callable[[State, State], State], state: State, axis: int) -> State:
    """Every prefix of `axis` combined; `combine(earlier, later)` is associative."""
    n = state[0].shape[axis]
    if not isinstance(n, int):
        raise NotRewritten
    step = 1
    while step < n:
        earlier = tuple(x.narrow(axis, 0, n - step) for x in state)
        later = tuple(x.narrow(axis, step, n - step) for x in state)
        state = tuple(
            torch.cat([x.narrow(axis, 0, step), y], axis)
            for x, y in zip(state, combine(earlier, later), strict=True)
        )
        step *= 2
    return state


def _positions(x: Tensor, axis: int) -> Tensor:
    """int64, of the shape of `x`: the place of each element on `axis`."""
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    return torch.arange(x.shape[axis], dtype=torch.int64).reshape(shape).expand(x.shape)


def _cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """torch takes the last of equals, and a NaN stays until the next one."""
    return _extreme(x, dim, torch.ge)


def _cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _extreme(x, dim, torch.le)


def _extreme(
    x: Tensor, dim: int, beats: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        values, indices = _extreme(x.unsqueeze(0), 0, beats)
        return values.squeeze(0), indices.squeeze(0)
    if x.dtype == torch.bool:
        raise NotRewritten

    def later_wins(earlier: State, later: State) -> State:
        wins = beats(later[0], earlier[0])
        if x.is_floating_point():
            wins = wins.logical_or(later[0] != later[0])
        return tuple(torch.where(wins, b, a) for a, b in zip(earlier, later, strict=True))

    values, indices = scan(later_wins, (x, _positions(x, dim)), dim)
    return values.clone(), indices.clone()


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log(e^a + e^b) as the larger plus log1p of what is left, which cannot overflow."""
    if x.dim() == 0:
        return x.clone()
    if not x.is_floating_point():
        raise NotRewritten

    def joined(earlier: State, later: State) -> State:
        a, b = earlier[0], later[0]
        largest, gap = torch.maximum(a, b), (a - b).abs()
        same = a == b  # the gap between infinities is NaN
        return (largest + torch.log1p(torch.exp(-gap.masked_fill(same, 0))),)

    return scan(joined, (x,), dim)[0].clone()


SCAN_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.cummax.default: traced(_cummax),
    aten.cummin.default: traced(_cummin),
    aten.logcumsumexp.default: traced(_logcumsumexp),
}
