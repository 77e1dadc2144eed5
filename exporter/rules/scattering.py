"""Writing to places that tensors name, in operators that runtimes have.

What is summed goes to `scatter_add`, which adds up what lands on one element. Other reductions,
and masks, compare every place with every element; `_LIMIT` bounds how many pairs that may make.
Sizes must be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils import _pytree as pytree

from ..nodes import Editor, tensor_value
from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["SCATTER_RULES", "bounded", "in_segments", "is_at_mask", "static"]

aten = torch.ops.aten

# Pairs of a place and an element, each with its value: 16 MiB of float32.
_LIMIT = 1 << 22


def bounded(*sizes: int) -> None:
    """Raise `NotRewritten` where a tensor of these sizes is more than a model should hold."""
    if math.prod(sizes) > _LIMIT:
        raise NotRewritten


def static(function: Callable[..., Any]) -> Rule:
    """The rule `traced` makes, for tensors of known sizes only."""
    rewritten = traced(function)

    def rule(editor: Editor, node: Node) -> Any:
        leaves = pytree.tree_leaves((node.args, node.kwargs))
        values = [v for leaf in leaves if (v := tensor_value(leaf)) is not None]
        if any(not isinstance(size, int) for value in values for size in value.shape):
            return None
        return rewritten(editor, node)

    return rule


def is_at_mask(node: Node) -> bool:
    """Whether a node writes where one boolean mask over the first axes is true, of known sizes."""
    if node.target not in (aten.index_put.default, aten._unsafe_index_put.default):
        return False
    indices: Any = node.args[1]
    mask = tensor_value(indices[0])
    values = [tensor_value(item) for item in (node.args[0], indices[0], node.args[2])]
    return (
        mask is not None
        and mask.dtype == torch.bool
        and not any(tensor_value(item) is not None for item in indices[1:])
        and all(v is not None and all(isinstance(s, int) for s in v.shape) for v in values)
    )


def _along(dim: int, rank: int, places: Tensor) -> Tensor:
    """A vector laid along one of `rank` axes."""
    shape = [1] * rank
    shape[dim] = -1
    return places.reshape(shape)


def _from_zero(index: Tensor, size: int) -> Tensor:
    """Places counted from the end, as those from the front."""
    return torch.where(index < 0, index + size, index)


def _identity(reduce: str, source: Tensor) -> Tensor | float:
    """What changes no reduction over `source`."""
    if reduce == "prod":
        return 1.0 if source.is_floating_point() else 1
    largest = reduce == "amin"
    if source.is_floating_point():
        return math.inf if largest else -math.inf
    return source.amax() if largest else source.amin()


def _reduced(x: Tensor, reduce: str, dim: int) -> Tensor:
    return torch.prod(x, dim) if reduce == "prod" else getattr(torch, reduce)(x, dim)


def _combined(x: Tensor, y: Tensor, reduce: str) -> Tensor:
    if reduce == "prod":
        return x * y
    return torch.maximum(x, y) if reduce == "amax" else torch.minimum(x, y)


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    if not x.dim():
        index, source = index.reshape(1), source.reshape(1)
        return _scatter_reduce(x.reshape(1), 0, index, source, reduce, include_self).reshape([])
    dim %= x.dim()
    index, source = (item.reshape(1) if not item.dim() else item for item in (index, source))
    source = source[tuple(slice(0, size) for size in index.shape)]
    if reduce == "sum":
        if not include_self:
            landed = _inside(torch.zeros_like(x), dim, index, torch.ones_like(source))
            x = torch.where(landed > 0, torch.zeros_like(x), x)
        return _inside(x, dim, index, source)
    if reduce == "mean" and x.is_floating_point():
        sums = _scatter_reduce(x, dim, index, source, "sum", include_self)
        first = torch.ones_like(x) if include_self else torch.zeros_like(x)
        counts = _inside(first, dim, index, torch.ones_like(source))
        return sums / torch.where(counts > 0, counts, 1.0)
    if reduce not in ("prod", "amax", "amin"):
        raise NotRewritten
    # What lies beyond the index along the other axes keeps its value: nothing lands there.
    beyond = [0 if axis == dim else x.shape[axis] - index.shape[axis] for axis in range(x.dim())]
    if any(beyond):
        borders = [item for room in reversed(beyond) for item in (0, room)]
        index = aten.constant_pad_nd.default(index, borders, -1)
        source = aten.constant_pad_nd.default(source, borders, 0)
    moved = [item.movedim(dim, 0) for item in (x, index, source)]
    rest = moved[0].shape[1:]
    x, index, source = (item.reshape(item.shape[0], -1) for item in moved)
    bounded(x.shape[0], *index.shape)
    hit = index[None] == torch.arange(x.shape[0])[:, None, None]
    found = _reduced(torch.where(hit, source[None], _identity(reduce, source)), reduce, 1)
    found = _combined(x, found, reduce) if include_self else torch.where(hit.any(1), found, x)
    return found.reshape([-1, *rest]).movedim(0, dim)


def _spread(
    x: Tensor, dim: int, index: Tensor, source: Tensor
) -> tuple[Tensor, int, Tensor, Tensor]:
    """The arguments of `scatter` for those of an operator that writes whole slices."""
    if not x.dim():
        return x.reshape(1), 0, index.reshape(1), source.reshape(1)
    dim %= x.dim()
    shape = [*x.shape]
    shape[dim] = index.numel()
    return x, dim, _along(dim, x.dim(), index).expand(shape), source.reshape(shape)


def _inside(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`scatter_add` where the index may be shorter than `x` along other axes than `dim`.

    Runtimes want equal sizes there.
    """
    for axis, size in enumerate(index.shape):
        if axis != dim and size != x.shape[axis]:
            inner = _inside(x.narrow(axis, 0, size), dim, index, source)
            return torch.cat([inner, x.narrow(axis, size, x.shape[axis] - size)], axis)
    return x.scatter_add(dim, index, source)


def _needs_fitting(x: Tensor, dim: int, index: Tensor, source: Tensor | None) -> bool:
    if not x.dim() or x.dim() != index.dim():
        return False
    if source is not None and source.shape != index.shape:
        return True
    others = (axis for axis in range(x.dim()) if axis != dim % x.dim())
    return any(x.shape[axis] != index.shape[axis] for axis in others)


def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if not _needs_fitting(x, dim, index, source):
        raise NotRewritten
    found: Tensor = aten.scatter_reduce.two(x, dim, index, source, "sum")
    return found


def _scatter(x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    """Each place counted in the flat tensor."""
    if not _needs_fitting(x, dim, index, source if isinstance(source, Tensor) else None):
        raise NotRewritten
    if isinstance(source, Tensor):
        source = source[tuple(slice(0, size) for size in index.shape)]
    else:
        source = torch.full(index.shape, source, dtype=x.dtype)
    places = torch.full([], 0)
    for axis, size in enumerate(index.shape):
        along = index if axis == dim % x.dim() else _along(axis, x.dim(), torch.arange(size))
        places = places * x.shape[axis] + along
    flat: Tensor = aten.index_put.default(x.reshape(-1), [places.reshape(-1)], source.reshape(-1))
    return flat.reshape(x.shape)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    given = _spread(x, dim, index, source)
    return _scatter_reduce(*given, reduce, include_self).reshape(x.shape)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    start, dim, index, source = _spread(x, dim, index, source)
    return start.scatter_add(dim, index, source if alpha == 1 else source * alpha).reshape(x.shape)


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    start, dim, index, source = _spread(x, dim, index, source)
    return start.scatter(dim, index, source).reshape(x.shape)


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    start = x if x.dim() else x.reshape(1)
    size = start.shape[dim]
    bounded(size, index.numel())
    places = _from_zero(index.reshape(1, -1), size)
    hit = (places == torch.arange(size)[:, None]).any(1)
    value = value.to(x.dtype) if isinstance(value, Tensor) else torch.full([], value, dtype=x.dtype)
    return torch.where(_along(dim, start.dim(), hit), value, start).reshape(x.shape)


def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in given):
        if len(given) > 1 or given[0][0]:
            raise NotRewritten
        return _at_mask(x, given[0][1], values, accumulate)
    axes = [axis for axis, _ in given]
    places = torch.broadcast_tensors(*(index for _, index in given))
    shape, others = places[0].shape, [axis for axis in range(x.dim()) if axis not in axes]
    rest = [x.shape[axis] for axis in others]
    # The axes of the places stand where the indexed ones stood if those are next to each other.
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    values = values.to(x.dtype).expand([*rest[:first], *shape, *rest[first:]])
    moved = range(first, first + len(shape))
    values = values.movedim([*moved], [*range(len(shape))])
    flat = torch.full([], 0)
    for axis, place in zip(axes, places, strict=True):
        flat = flat * x.shape[axis] + _from_zero(place, x.shape[axis])
    many, wide = math.prod(shape), math.prod(rest)
    start = x.permute(*axes, *others)
    table, values = start.reshape(-1, wide), values.reshape(many, wide)
    to = flat.reshape(many, 1).expand(many, wide)
    table = table.scatter_add(0, to, values) if accumulate else table.scatter(0, to, values)
    back = [(axes + others).index(axis) for axis in range(x.dim())]
    return table.reshape(start.shape).permute(back)


def _at_mask(x: Tensor, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    rest = x.dim() - mask.dim()
    mask = mask.to(torch.bool)
    if values.dim() == rest + 1 and values.shape[0] != 1:  # one for each true element, in order
        picked = values.index_select(0, _order(mask))
        values = picked.reshape([*mask.shape, *values.shape[1:]])
    elif values.dim() == rest + 1:
        values = values[0]
    values = values.to(x.dtype)
    return torch.where(
        mask.reshape([*mask.shape, *[1] * rest]), x + values if accumulate else values, x
    )


def _order(mask: Tensor) -> Tensor:
    """How many true elements precede each true one, flat; 0 for the others."""
    flat = mask.reshape(-1)
    return torch.where(flat, flat.to(torch.int64).cumsum(0) - 1, 0)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    picked = source.reshape(-1).index_select(0, _order(mask)).reshape(x.shape)
    return torch.where(mask, picked, x)


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    value = value.to(x.dtype) if isinstance(value, Tensor) else torch.full([], value, dtype=x.dtype)
    x, mask = torch.broadcast_tensors(x, mask)
    return torch.where(mask, value, x)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    flat, places = x.reshape(-1), _from_zero(index.reshape(-1), x.numel())
    source = source.reshape(-1)
    flat = flat.scatter_add(0, places, source) if accumulate else flat.scatter(0, places, source)
    return flat.reshape(x.shape)


def _select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    dim, size = dim % x.dim(), x.shape[dim]
    hit = _along(dim, x.dim(), torch.arange(size) == index % size)
    return torch.where(hit, source.unsqueeze(dim), x)


def _nonzero_static(x: Tensor, size: int, fill_value: int) -> Tensor:
    flat = x.reshape(-1) != 0
    many = flat.shape[0]
    bounded(size, many)
    counted = flat.to(torch.int64).cumsum(0)
    rows = torch.arange(size)
    hit = (counted[None, :] == rows[:, None] + 1) & flat[None, :]
    columns = []
    for axis, length in enumerate(x.shape):
        step = math.prod(x.shape[axis + 1 :])
        along = torch.arange(length)[:, None].expand(length, step).reshape(1, -1)
        place = along.expand(many // (length * step), -1).reshape(1, -1)
        columns.append(torch.where(hit, place, 0).sum(1))
    return torch.where(hit.any(1)[:, None], torch.stack(columns, 1), fill_value)


def in_segments(starts: Tensor, ends: Tensor, count: int) -> Tensor:
    """(..., segments, count): which of `count` elements lie in each segment."""
    places = torch.arange(count)
    return (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))


def _segment_reduce(
    data: Tensor,
    reduce: str,
    lengths: Tensor | None,
    indices: Tensor | None,
    offsets: Tensor | None,
    axis: int,
    unsafe: bool,
    initial: float | None,
) -> Tensor:
    if not data.is_floating_point() or (lengths is None and offsets is None):
        raise NotRewritten
    axis %= data.dim()
    before, count, after = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    if offsets is not None:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    else:
        assert lengths is not None
        ends = lengths.cumsum(-1)
        starts = ends - lengths
    segments = starts.shape[-1]
    starts, ends = (item.reshape(-1, segments) for item in (starts, ends))
    data = data.reshape(starts.shape[0], 1, count, -1)
    bounded(segments, data.numel())
    hit = in_segments(starts, ends, count).unsqueeze(-1)
    name = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    none = 0.0 if name == "sum" else _identity(name, data)
    found = _reduced(torch.where(hit, data, none), name, 2)
    if initial is not None:
        first = torch.full([], initial, dtype=data.dtype)
        found = found + first if name == "sum" else _combined(found, first, name)
    if reduce == "mean":  # without an initial value the mean of nothing is NaN
        many = (ends - starts).unsqueeze(-1).to(data.dtype)
        found = found / (many if initial is None else torch.where(many > 0, many, 1.0))
    return found.reshape([*before, segments, *after])


def _clamped(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Places within `x`; those outside are masked. Negative ones count from the end."""
    return [
        None
        if index is None
        else _from_zero(index.clamp(-x.shape[axis], x.shape[axis] - 1), x.shape[axis])
        for axis, index in enumerate(indices)
    ]


def _masked_index(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: float) -> Tensor:
    found = aten.index.Tensor(x, _clamped(x, indices))
    return torch.where(mask, found, torch.full([], fill, dtype=x.dtype))


def _masked_index_put(
    x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    values = torch.where(mask, values, torch.full([], 0, dtype=values.dtype))
    return _index_put(x, _clamped(x, indices), values, True)


def _repeats(repeats: Tensor, output_size: int | None) -> Tensor:
    """The place that each repeated element came from: how many had ended before it."""
    if output_size is None:
        raise NotRewritten
    bounded(output_size, repeats.numel())
    ended = repeats.cumsum(0)[None, :] <= torch.arange(output_size)[:, None]
    return ended.to(torch.int64).sum(1).to(repeats.dtype)


SCATTER_RULES: dict[Any, Rule] = {
    aten.scatter_reduce.two: static(_scatter_reduce),
    aten.scatter_add.default: static(_scatter_add),
    aten.scatter.src: static(_scatter),
    aten.scatter.value: static(_scatter),
    aten.index_reduce.default: static(_index_reduce),
    aten.index_add.default: static(_index_add),
    aten.index_copy.default: static(_index_copy),
    aten.index_fill.int_Scalar: static(_index_fill),
    aten.index_fill.int_Tensor: static(_index_fill),
    aten.index_put.default: static(_index_put),
    aten._unsafe_index_put.default: static(_index_put),
    aten.masked_scatter.default: static(_masked_scatter),
    aten.masked_fill.Scalar: static(_masked_fill),
    aten.masked_fill.Tensor: static(_masked_fill),
    aten.put.default: static(_put),
    aten.select_scatter.default: static(_select_scatter),
    aten.nonzero_static.default: static(_nonzero_static),
    aten.segment_reduce.default: static(_segment_reduce),
    aten._unsafe_masked_index.default: static(_masked_index),
    aten._unsafe_masked_index_put_accumulate.default: static(_masked_index_put),
    aten.repeat_interleave.Tensor: static(_repeats),
}
