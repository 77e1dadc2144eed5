"""Medians, modes, quantiles, histograms and places in sorted sequences.

Values are torch's. Where elements are equal, torch documents the index of a median, of a mode and
of the k-th value as not deterministic: that of a mode is the last one here, as torch's is on short
axes, the others are any.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .common import Rule
from .scans import scan
from .traced import NotRewritten, traced

__all__ = ["ORDER_RULES"]

aten = torch.ops.aten

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _axis_last(x: Tensor, dim: int | None) -> tuple[Tensor, int]:
    """`x` with the axis moved to the end (all axes flattened for None), and its known size."""
    if x.dim() == 0:
        x = x.unsqueeze(0)
    elif dim is None:
        x = x.reshape(-1)
    elif dim % x.dim() != x.dim() - 1:
        x = x.movedim(dim, -1)
    n = x.shape[-1]
    if not isinstance(n, int) or n == 0:
        raise NotRewritten
    return x, n


def _back(found: Tensor, source: Tensor, dim: int | None, *, keep: bool) -> Tensor:
    """The last axis, of size 1, put back in its place or dropped."""
    if source.dim() == 0:
        return found.squeeze(-1)
    if not keep:
        return found.squeeze(-1)
    if dim is None:
        return found.reshape([1] * source.dim())
    return found.movedim(-1, dim)


def _infinite_for_nan(x: Tensor) -> tuple[Tensor, Tensor]:
    """NaN, last in torch's order, as infinity; and how many numbers (..., 1) there are."""
    nan = x != x
    count = nan.logical_not().to(torch.int64).sum(-1, keepdim=True)
    return x.masked_fill(nan, float("inf")), count


def _any_nan(x: Tensor) -> Tensor:
    """bool (..., 1)"""
    return (x != x).to(x.dtype).sum(-1, keepdim=True) > 0


def _first(mask: Tensor, n: int) -> Tensor:
    """int64 (..., 1): the first place that is true, n where none is."""
    order = torch.arange(n, dtype=torch.int64)
    return torch.where(mask, order, n).amin(-1, keepdim=True)


def _sorted(x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and indices in ascending order of the last axis.

    As all of the smallest: where runtimes write a sort as argsort and gather, values of equals hang
    on an order that is not documented, and those of `topk` do not.
    """
    values, indices = torch.topk(x, x.shape[-1], -1, largest=False)
    return values, indices


def _kth(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The element at place `k` of the order, NaN last, and its index; both (..., 1)."""
    if not x.is_floating_point():
        values, indices = _sorted(x)
        return values.narrow(-1, k, 1), indices.narrow(-1, k, 1)
    numbers, count = _infinite_for_nan(x)
    values, indices = _sorted(numbers)
    value = values.narrow(-1, k, 1).masked_fill(count <= k, float("nan"))
    return value, indices.narrow(-1, k, 1)


def _kthvalue(x: Tensor, k: int, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    last, _ = _axis_last(x, dim)
    value, index = _kth(last, k - 1)
    return _back(value, x, dim, keep=keep), _back(index, x, dim, keep=keep)


def _median_dim(x: Tensor, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    """The lower of the two in the middle; NaN where there is one, and then its place."""
    last, n = _axis_last(x, dim)
    value, index = _kth(last, (n - 1) // 2)
    if x.is_floating_point():
        place = _first(last != last, n)
        value = value.masked_fill(place < n, float("nan"))
        index = torch.where(place < n, place, index)
    return _back(value, x, dim, keep=keep), _back(index, x, dim, keep=keep)


def _median(x: Tensor) -> Tensor:
    return _median_dim(x.reshape(-1), 0, False)[0]


def _nanmedian_dim(x: Tensor, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    if not x.is_floating_point():
        return _median_dim(x, dim, keep)
    last, _ = _axis_last(x, dim)
    numbers, count = _infinite_for_nan(last)
    values, indices = _sorted(numbers)
    none = count == 0
    middle = ((count - 1).clamp(min=0).to(x.dtype) / 2).floor().to(torch.int64)
    value = values.gather(-1, middle).masked_fill(none, float("nan"))
    index = indices.gather(-1, middle).masked_fill(none, 0)
    return _back(value, x, dim, keep=keep), _back(index, x, dim, keep=keep)


def _nanmedian(x: Tensor) -> Tensor:
    return _nanmedian_dim(x.reshape(-1), 0, False)[0]


def _mode(x: Tensor, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent values: the first of the longest runs once sorted."""
    last, n = _axis_last(x, dim)
    values = _sorted(last)[0]
    order = torch.arange(n, dtype=torch.int64)
    start = order.expand(values.shape)
    if n > 1:
        equal = values.narrow(-1, 1, n - 1) == values.narrow(-1, 0, n - 1)
        begun = torch.where(equal, 0, order.narrow(0, 1, n - 1))
        first = torch.zeros_like(begun.narrow(-1, 0, 1))
        start = scan(
            lambda earlier, later: (torch.maximum(earlier[0], later[0]),),
            (torch.cat([first, begun], -1),),
            -1,
        )[0]
    length = order - start
    end = _first(length == length.amax(-1, keepdim=True), n)
    value = values.gather(-1, end)
    index = torch.where(last == value, order, 0).amax(-1, keepdim=True)
    return _back(value, x, dim, keep=keep), _back(index, x, dim, keep=keep)


# ---------------------------------------------------------------- quantiles


def _quantile(
    x: Tensor, q: Tensor | float, dim: int | None, keep: bool, interpolation: str
) -> Tensor:
    return _quantiles(x, q, dim, interpolation, keep=keep, ignore=False)


def _nanquantile(
    x: Tensor, q: Tensor | float, dim: int | None, keep: bool, interpolation: str
) -> Tensor:
    return _quantiles(x, q, dim, interpolation, keep=keep, ignore=True)


def _quantiles(
    x: Tensor, q: Tensor | float, dim: int | None, interpolation: str, *, keep: bool, ignore: bool
) -> Tensor:
    if interpolation not in _INTERPOLATIONS:
        raise NotRewritten
    last, n = _axis_last(x, dim)
    several = isinstance(q, Tensor) and q.dim() == 1
    shares = q.reshape(-1) if isinstance(q, Tensor) else torch.full([1], q, dtype=x.dtype)
    numbers, count = _infinite_for_nan(last)
    values = _sorted(numbers)[0]
    ranks = shares * ((count - 1).clamp(min=0).to(x.dtype) if ignore else float(n - 1))
    ranks = ranks.expand(*values.shape[:-1], ranks.shape[-1])
    if interpolation == "lower":
        ranks = ranks.floor()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    elif interpolation == "nearest":
        ranks = ranks.round()
    floor = ranks.floor()
    below = values.gather(-1, floor.to(torch.int64))
    if interpolation in ("linear", "midpoint"):
        above = values.gather(-1, ranks.ceil().to(torch.int64))
        gap = above - below
        if interpolation == "midpoint":
            below = above - gap * 0.5
        else:  # as `lerp`, which is exact at both ends
            weight = ranks - floor
            near = below + weight * gap
            below = torch.where(weight < 0.5, near, above - gap * (1 - weight))
    missing = count == 0 if ignore else count < n
    result = below.masked_fill(missing, float("nan"))
    return _quantile_shape(result, x, dim, keep=keep, several=several)


def _quantile_shape(
    found: Tensor, source: Tensor, dim: int | None, *, keep: bool, several: bool
) -> Tensor:
    """The axis of several quantiles comes first, before what is left of the source's axes."""
    if not several:
        return _back(found, source, dim, keep=keep)
    first = found.movedim(-1, 0) if found.dim() > 1 else found
    if source.dim() == 0 or not keep:
        return first
    if dim is None:
        return first.reshape([-1] + [1] * source.dim())
    return first.unsqueeze(1 + dim % source.dim())


# ---------------------------------------------------------------- places and bins


def _places(sequence: Tensor, x: Tensor, *, right: bool, int32: bool) -> Tensor:
    """How many of `sequence` (..., n) come before each of `x` (..., k); NaN comes last."""
    bounds, values = sequence.unsqueeze(-2), x.unsqueeze(-1)
    after = (bounds > values) if right else (bounds >= values)
    dtype = torch.int32 if int32 else torch.int64
    return after.logical_not().to(dtype).sum(-1, dtype=dtype)


def _search(
    sequence: Tensor, x: Tensor, int32: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor:
    if sorter is not None:
        sequence = sequence.gather(-1, sorter.to(torch.int64))
    right = right or side == "right"
    if x.dim() == 0:
        return _places(sequence, x.unsqueeze(0), right=right, int32=int32).squeeze(0)
    return _places(sequence, x, right=right, int32=int32)


def _search_number(
    sequence: Tensor, x: float, int32: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor:
    number = torch.full([1], x, dtype=sequence.dtype)
    return _search(sequence, number, int32, right, side, sorter).squeeze(0)


def _bucketize(x: Tensor, bounds: Tensor, int32: bool, right: bool) -> Tensor:
    return _search(bounds, x, int32, right, None, None)


def _bucketize_number(x: float, bounds: Tensor, int32: bool, right: bool) -> Tensor:
    return _search_number(bounds, x, int32, right, None, None)


def _histc(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """Bins of equal width over [low, high]; the last one holds `high` too."""
    flat = x.reshape(-1)
    if not x.is_floating_point() or flat.shape[0] == 0:
        raise NotRewritten
    first: Tensor | float = low
    width: Tensor | float = high - low
    if low == high:  # the range of the values, made one wider on both sides where it is empty
        least, most = flat.amin(0, keepdim=True), flat.amax(0, keepdim=True)
        same = (least == most).to(x.dtype)
        first, width = least - same, most - least + 2 * same
    top = first + width
    place = ((flat - first) * bins / width).floor()
    place = torch.where(flat == top, float(bins - 1), place)
    place = place.masked_fill(((flat >= first) & (flat <= top)).logical_not(), -1)
    which = torch.arange(bins, dtype=x.dtype).unsqueeze(-1)
    return (place.unsqueeze(0) == which).to(x.dtype).sum(-1)


ORDER_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.kthvalue.default: traced(_kthvalue),
    aten.median.default: traced(_median),
    aten.median.dim: traced(_median_dim),
    aten.nanmedian.default: traced(_nanmedian),
    aten.nanmedian.dim: traced(_nanmedian_dim),
    aten.mode.default: traced(_mode),
    aten.quantile.default: traced(_quantile),
    aten.quantile.scalar: traced(_quantile),
    aten.nanquantile.default: traced(_nanquantile),
    aten.nanquantile.scalar: traced(_nanquantile),
    aten.searchsorted.Tensor: traced(_search),
    aten.searchsorted.Scalar: traced(_search_number),
    aten.bucketize.Tensor: traced(_bucketize),
    aten.bucketize.Scalar: traced(_bucketize_number),
    aten.histc.default: traced(_histc),
}
