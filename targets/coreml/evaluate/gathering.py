"""Gather: elements and slices chosen by index. Writing them is in scattering.py."""

from __future__ import annotations

import math

import torch

from .axes import one_axis
from .call import Call, Operator
from .indices import given_indices
from .scattering import OPERATORS as _SCATTERING

__all__ = ["OPERATORS"]


def _batch_dims(call: Call, x: torch.Tensor, indices: torch.Tensor) -> int:
    count = call.integer("batch_dims", 0)
    if count < 0:
        call.refuse("negative batch_dims")
    if count > min(x.dim(), indices.dim()) or x.shape[:count] != indices.shape[:count]:
        raise call.damaged(f"batch_dims {count} of {list(x.shape)} and {list(indices.shape)}")
    return count


def _gather(call: Call) -> torch.Tensor:
    x, raw = call.tensor("x"), call.tensor("indices")
    axis, batch = one_axis(call, "axis", x.dim(), 0), _batch_dims(call, x, raw)
    if axis < batch:
        raise call.damaged(f"axis {axis} is one of the {batch} batch_dims")
    indices = given_indices(call, raw, x.shape[axis])
    shape = x.shape[:axis] + indices.shape[batch:] + x.shape[axis + 1 :]
    batches, outer = math.prod(x.shape[:batch]), math.prod(x.shape[batch:axis])
    inner = math.prod(x.shape[axis + 1 :])
    each = math.prod(indices.shape[batch:])
    source = x.reshape(batches, outer, x.shape[axis], inner)
    if batch == 0:
        return source.index_select(2, indices.reshape(-1)).reshape(shape)
    place = indices.reshape(batches, 1, each, 1).expand(batches, outer, each, inner)
    return source.gather(2, place).reshape(shape)


def _gather_along_axis(call: Call) -> torch.Tensor:
    x, raw = call.tensor("x"), call.tensor("indices")
    axis = one_axis(call, "axis", x.dim(), 0)
    if raw.dim() != x.dim() or any(
        want > size
        for place, (want, size) in enumerate(zip(raw.shape, x.shape, strict=True))
        if place != axis
    ):
        raise call.damaged(f"indices of {list(raw.shape)} for {list(x.shape)}")
    return x.gather(axis, given_indices(call, raw, x.shape[axis]))


def _gather_nd(call: Call) -> torch.Tensor:
    x, raw = call.tensor("x"), call.tensor("indices")
    batch = _batch_dims(call, x, raw)
    if raw.dim() <= batch:
        raise call.damaged("indices has no axis of indices")
    depth = raw.shape[-1]
    if batch + depth > x.dim():
        raise call.damaged(f"{depth} indices for {x.dim()} axes")
    sizes = x.shape[batch : batch + depth]
    columns = [given_indices(call, raw[..., i], size) for i, size in enumerate(sizes)]
    call.flag("validate_indices", False)  # read even where there is nothing to index
    linear = torch.zeros(raw.shape[:-1], dtype=torch.int64)
    for column, size in zip(columns, sizes, strict=True):
        linear = linear * size + column
    batches = math.prod(x.shape[:batch])
    rest = x.shape[batch + depth :]
    source = x.reshape(batches, math.prod(sizes), math.prod(rest))
    place = linear.reshape(batches, math.prod(raw.shape[batch:-1]), 1)
    found = source.gather(1, place.expand(-1, -1, math.prod(rest)))
    return found.reshape(raw.shape[:-1] + rest)


OPERATORS: dict[str, Operator] = {
    "gather": _gather,
    "gather_along_axis": _gather_along_axis,
    "gather_nd": _gather_nd,
    **_SCATTERING,
}
