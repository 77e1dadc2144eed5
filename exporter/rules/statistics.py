"""Sums, products, means and variances of axes, some of whose elements may be left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["STATISTICS_RULES"]

aten, prims = torch.ops.aten, torch.ops.prims


def _axes(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The axes that are reduced; none named means all."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(x.dim()))
    named = [dim] if isinstance(dim, int) else list(dim)
    return [axis % max(x.dim(), 1) for axis in named]


def _count(x: Tensor, axes: list[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _centred(x: Tensor, axes: list[int], correction: float) -> tuple[Tensor, Tensor]:
    """Variance and mean with the axes kept, in two passes: the squares are of small numbers."""
    mean = x.mean(axes, keepdim=True)
    apart = x - mean
    squares = (apart * apart).sum(axes, keepdim=True)
    count = _count(x, axes)
    if not isinstance(count, int):
        return squares / torch.sym_max(count - correction, 0), mean
    freedom = max(count - correction, 0)
    if freedom == 0:  # 0 / 0 is NaN as in torch, and what is not quite zero is infinite
        return squares / torch.zeros_like(squares), mean
    return squares / freedom, mean


def _drop(x: Tensor, axes: list[int], *, keep: bool) -> Tensor:
    return x if keep else x.squeeze(axes)


def _var_mean(
    x: Tensor, dim: Sequence[int] | None, correction: float | None, keep: bool
) -> tuple[Tensor, Tensor]:
    if x.dim() == 0:
        variance, mean = _var_mean(x.unsqueeze(0), [0], correction, False)
        return variance, mean
    axes = _axes(x, dim)
    variance, mean = _centred(x, axes, 1 if correction is None else correction)
    return _drop(variance, axes, keep=keep), _drop(mean, axes, keep=keep)


def _std_mean(
    x: Tensor, dim: Sequence[int] | None, correction: float | None, keep: bool
) -> tuple[Tensor, Tensor]:
    variance, mean = _var_mean(x, dim, correction, keep)
    return variance.sqrt(), mean


def _var(x: Tensor, dim: Sequence[int] | None, correction: float | None, keep: bool) -> Tensor:
    return _var_mean(x, dim, correction, keep)[0]


def _std(x: Tensor, dim: Sequence[int] | None, correction: float | None, keep: bool) -> Tensor:
    return _var(x, dim, correction, keep).sqrt()


def _prims_var(
    x: Tensor, dim: Sequence[int] | None, correction: float | None, dtype: torch.dtype | None
) -> Tensor:
    if dtype is not None and dtype != x.dtype:
        raise NotRewritten
    return _var(x, dim, correction, False)


def _zero_for_nan(x: Tensor) -> tuple[Tensor, Tensor]:
    """`x` with zeros for what is NaN, and where that is."""
    nan = x != x
    return x.masked_fill(nan, 0), nan


def _nansum(x: Tensor, dim: Sequence[int] | None, keep: bool, dtype: torch.dtype | None) -> Tensor:
    if not x.is_floating_point() or (dtype is not None and dtype != x.dtype):
        raise NotRewritten
    if x.dim() == 0:
        return _nansum(x.unsqueeze(0), [0], False, dtype)
    return _zero_for_nan(x)[0].sum(_axes(x, dim), keepdim=keep)


def _nanmean(x: Tensor, dim: Sequence[int] | None, keep: bool, dtype: torch.dtype | None) -> Tensor:
    if not x.is_floating_point() or (dtype is not None and dtype != x.dtype):
        raise NotRewritten
    if x.dim() == 0:
        return _nanmean(x.unsqueeze(0), [0], False, dtype)
    axes = _axes(x, dim)
    numbers, nan = _zero_for_nan(x)
    count = nan.logical_not().to(x.dtype).sum(axes, keepdim=keep)
    return numbers.sum(axes, keepdim=keep) / count


def _product(x: Tensor, axis: int) -> Tensor:
    """Of one axis, which is kept: halves are multiplied until one element is left."""
    n = x.shape[axis]
    if not isinstance(n, int) or n == 0:
        raise NotRewritten
    while n > 1:
        half = n // 2
        pairs = x.narrow(axis, 0, half) * x.narrow(axis, half, half)
        x = torch.cat([pairs, x.narrow(axis, n - 1, 1)], axis) if n % 2 else pairs
        n = x.shape[axis]
    return x


def _prod_dim(x: Tensor, dim: int, keep: bool, dtype: torch.dtype | None) -> Tensor:
    if not x.is_floating_point() or (dtype is not None and dtype != x.dtype):
        raise NotRewritten
    if x.dim() == 0:
        return x.clone()
    product = _product(x, dim)
    return product if keep else product.squeeze(dim)


def _prod(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return _prims_prod(x, None, dtype)


def _prims_prod(x: Tensor, dim: Sequence[int] | None, dtype: torch.dtype | None) -> Tensor:
    if not x.is_floating_point() or (dtype is not None and dtype != x.dtype):
        raise NotRewritten
    axes = _axes(x, dim)
    for axis in axes:
        x = _product(x, axis)
    return x.squeeze(axes) if axes else x.clone()


STATISTICS_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.var.correction: traced(_var),
    aten.std.correction: traced(_std),
    aten.var_mean.correction: traced(_var_mean),
    aten.std_mean.correction: traced(_std_mean),
    prims.var.default: traced(_prims_var),
    aten.nansum.default: traced(_nansum),
    aten.nanmean.default: traced(_nanmean),
    aten.prod.default: traced(_prod),
    aten.prod.dim_int: traced(_prod_dim),
    prims.prod.default: traced(_prims_prod),
}
