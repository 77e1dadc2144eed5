"""Tensors put together and taken apart: concat, stack, split."""

from __future__ import annotations

import torch

from .axes import axis_within, one_axis
from .call import Call, Operator, fits

__all__ = ["OPERATORS"]


def _tensors(call: Call) -> tuple[torch.Tensor, ...]:
    """`values`, all of one dtype and rank."""
    values = call.values("values")
    if not values or not all(isinstance(item, torch.Tensor) for item in values):
        raise call.damaged("values are no tensors")
    if len({(item.dtype, item.dim()) for item in values}) != 1:
        raise call.damaged("values differ in dtype or rank")
    return values


def _concat(call: Call) -> torch.Tensor:
    values = _tensors(call)
    if values[0].dim() == 0:
        # Sizes are put together so. The rank is not documented, but the declared type leaves
        # one reading: each is an element.
        values = tuple(item.reshape(1) for item in values)
    axis = one_axis(call, "axis", values[0].dim())
    if not call.flag("interleave", False):
        # torch leaves out tensors of shape (0,), whatever the others' rank; the ranks are equal.
        return torch.cat(values, axis)
    if len({item.shape for item in values}) != 1:
        raise call.damaged("interleaved values differ in shape")
    return torch.stack(values, axis + 1).flatten(axis, axis + 1)


def _stack(call: Call) -> torch.Tensor:
    values, axis = _tensors(call), call.integer("axis")
    rank = values[0].dim()
    if len({item.shape for item in values}) != 1:
        raise call.damaged("values differ in shape")
    place = axis_within(call, axis, rank + 1)
    result = torch.stack(values, place)
    if axis >= 0 or place == 0:
        return result
    # The documentation does not say whether a negative axis is counted in the result or in the
    # inputs, for which it gives the range [-rank, rank). The declared shape tells, if it differs.
    readings = [result, torch.stack(values, place - 1)]
    fitting = [item for item in readings if fits(item, call.result_type())]
    if len(fitting) > 1 and not (readings[0].shape == readings[1].shape and torch.equal(*readings)):
        call.refuse(f"axis {axis}: counted in the inputs or in the result")
    return fitting[0] if fitting else result


def _split(call: Call) -> tuple[torch.Tensor, ...]:
    x = call.tensor("x")
    axis = one_axis(call, "axis", x.dim())
    size = x.shape[axis]
    count = call.integer("num_splits") if call.has("num_splits") else None
    if call.has("split_sizes"):
        sizes = call.integers("split_sizes")
        if count is not None and count != len(sizes):
            raise call.damaged(f"num_splits is {count} for {len(sizes)} split_sizes")
    elif count is None:
        raise call.damaged("num_splits and split_sizes are missing")
    elif count < 1 or size % count:
        raise call.damaged(f"{size} is not divisible by num_splits {count}")
    else:
        sizes = [size // count] * count
    if sum(sizes) != size or any(part < 0 for part in sizes):
        raise call.damaged(f"split_sizes {sizes} do not add up to {size}")
    if len(sizes) != len(call.operation.outputs):
        raise call.damaged(f"it splits into {len(sizes)}, not {len(call.operation.outputs)}")
    return torch.split(x, sizes, axis)


OPERATORS: dict[str, Operator] = {"concat": _concat, "stack": _stack, "split": _split}
