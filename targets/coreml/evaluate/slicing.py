"""Slices, and writing into them."""

from __future__ import annotations

import torch

from .axes import axis_within
from .call import Call, Operator

__all__ = ["OPERATORS"]


def _per_axis(call: Call, name: str, rank: int) -> list[int]:
    found = call.integers(name)
    if len(found) != rank:
        raise call.damaged(f"{name} has {len(found)} values for {rank} axes")
    return found


def _mask(call: Call, name: str, rank: int) -> list[bool]:
    found = call.flags(name) if call.has(name) else [False] * rank
    if len(found) != rank:
        raise call.damaged(f"{name} has {len(found)} values for {rank} axes")
    return found


def _ranges(call: Call, shape: torch.Size) -> tuple[list[range], list[int]]:
    """For each axis the indices that a slice takes, and the axes that vanish from the result.

    NumPy's rule `x[begin:end:stride]`: negative ends count from the back, ends beyond the axis
    are cut to it.
    """
    rank = len(shape)
    begins, ends = _per_axis(call, "begin", rank), _per_axis(call, "end", rank)
    strides = _per_axis(call, "stride", rank) if call.has("stride") else [1] * rank
    begin_mask, end_mask = _mask(call, "begin_mask", rank), _mask(call, "end_mask", rank)
    squeeze = _mask(call, "squeeze_mask", rank)
    ranges = []
    for axis, size in enumerate(shape):
        begin = 0 if begin_mask[axis] else begins[axis]
        if squeeze[axis]:
            if not -size <= begin < size:
                call.refuse(f"index {begin} on an axis of {size}")
            ranges.append(range(begin % size, begin % size + 1))
            continue
        if strides[axis] == 0:
            raise call.damaged("a stride is 0")
        if strides[axis] < 0 and (begin_mask[axis] or end_mask[axis]):
            call.refuse("a mask on an axis with a negative stride")
        end = size if end_mask[axis] else ends[axis]
        ranges.append(range(*slice(begin, end, strides[axis]).indices(size)))
    return ranges, [axis for axis in range(rank) if squeeze[axis]]


def _taken(x: torch.Tensor, ranges: list[range]) -> torch.Tensor:
    for axis, chosen in enumerate(ranges):
        if chosen.step > 0:
            index = [slice(None)] * axis + [slice(chosen.start, chosen.stop, chosen.step)]
            x = x[tuple(index)]
        else:
            x = x.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return x


def _slice_by_index(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    ranges, squeezed = _ranges(call, x.shape)
    taken = _taken(x, ranges)
    return taken.reshape([n for axis, n in enumerate(taken.shape) if axis not in squeezed])


def _slice_by_size(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    begins, sizes = _per_axis(call, "begin", x.dim()), _per_axis(call, "size", x.dim())
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        length = x.shape[axis] - begin if size == -1 else size
        if begin < 0 or length < 0 or begin + length > x.shape[axis]:
            call.refuse(f"{size} elements from {begin} on an axis of {x.shape[axis]}")
        x = x.narrow(axis_within(call, axis, x.dim()), begin, length)
    return x


def _slice_update(call: Call) -> torch.Tensor:
    x, update = call.tensor("x"), call.tensor("update")
    if update.dim() == 0:
        call.refuse("an update of rank 0")
    ranges, squeezed = _ranges(call, x.shape)
    shape = [len(chosen) for chosen in ranges]
    if list(update.shape) != [n for axis, n in enumerate(shape) if axis not in squeezed]:
        raise call.damaged(f"an update of {list(update.shape)} for a slice of {shape}")
    if update.dtype != x.dtype:
        raise call.damaged("x and update differ in dtype")
    result = x.clone()
    places = torch.meshgrid(
        *(torch.tensor(list(r), dtype=torch.int64) for r in ranges), indexing="ij"
    )
    result[places] = update.reshape(shape)
    return result


OPERATORS: dict[str, Operator] = {
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "slice_update": _slice_update,
}
