"""Shapes: reshape, expand_dims, squeeze, transpose, tile, fill, range_1d and their kind."""

from __future__ import annotations

import math

import torch

from .axes import affordable, axis_within, one_axis
from .call import Call, Operator
from .joining import OPERATORS as _JOINING
from .types import STORAGE

__all__ = ["OPERATORS"]


def _reshape(call: Call) -> torch.Tensor:
    x, wanted = call.tensor("x"), call.integers("shape")
    rank, length = x.dim(), len(wanted)
    if call.opset < 7 and 0 in wanted and length != rank:
        call.refuse("a 0 in a shape of another rank, before iOS 17")
    shape = list(wanted)
    for index, size in enumerate(wanted):
        if size == 0:  # counted from the right; without a counterpart it is 1 (iOS 17)
            counterpart = index + rank - length
            shape[index] = x.shape[counterpart] if counterpart >= 0 else 1
    return _reshaped(call, x, shape)


def _reshaped(call: Call, x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """`x` with `shape`, one -1 of which stands for what remains."""
    unknown = [index for index, size in enumerate(shape) if size == -1]
    if len(unknown) > 1 or any(size < -1 for size in shape):
        raise call.damaged(f"{shape} is no shape")
    if unknown:
        known = math.prod(size for size in shape if size != -1)
        if known == 0:
            call.refuse("-1 beside a size of 0")
        if x.numel() % known:
            raise call.damaged(f"{x.numel()} elements do not fit {shape}")
        shape[unknown[0]] = x.numel() // known
    if math.prod(shape) != x.numel():
        raise call.damaged(f"{x.numel()} elements do not fit {shape}")
    return x.reshape(shape)


def _reshape_like(call: Call) -> torch.Tensor:
    x, references = call.tensor("x"), call.values("ref_tensors")
    begins, ends, masks = (call.values(name) for name in ("begins", "ends", "end_masks"))
    if not len(references) == len(begins) == len(ends) == len(masks):
        raise call.damaged("ref_tensors, begins, ends and end_masks differ in length")
    shape: list[int] = []
    for reference, begin, end, mask in zip(references, begins, ends, masks, strict=True):
        shape += list(reference.shape)[int(begin) : None if bool(mask) else int(end)]
    if math.prod(shape) != x.numel():
        raise call.damaged(f"{x.numel()} elements do not fit {shape}")
    return x.reshape(shape)


def _expand_dims(call: Call) -> torch.Tensor:
    x, axes = call.tensor("x"), call.integers("axes")
    rank = x.dim() + len(axes)
    places = [axis_within(call, axis, rank) for axis in axes]
    if len(set(places)) != len(places):
        raise call.damaged(f"axes {axes} name one twice")
    sizes = iter(x.shape)
    shape = [1 if axis in places else next(sizes) for axis in range(rank)]
    one_by_one = list(x.shape)
    for axis in axes:
        one_by_one.insert(axis_within(call, axis, len(one_by_one) + 1), 1)
    if one_by_one != shape:
        call.refuse(f"axes {axes}: counted in the result, or one after the other")
    return x.reshape(shape)


def _squeeze(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    if x.dim() == 0:
        raise call.damaged("x has no axis")
    axes = call.integers("axes") if call.has("axes") else list(range(x.dim()))
    places = {axis_within(call, axis, x.dim()) for axis in axes}
    return x.reshape([n for axis, n in enumerate(x.shape) if n != 1 or axis not in places])


def _transpose(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    order = [axis_within(call, axis, x.dim()) for axis in call.integers("perm")]
    if sorted(order) != list(range(x.dim())):
        raise call.damaged(f"perm {order} is no order of {x.dim()} axes")
    return x.permute(order)


def _tile(call: Call) -> torch.Tensor:
    x, reps = call.tensor("x"), call.integers("reps")
    if len(reps) != x.dim() or any(count < 0 for count in reps):
        raise call.damaged(f"reps {reps} for {x.dim()} axes")
    if 0 in reps:
        call.refuse("reps of 0")
    affordable(call, [size * count for size, count in zip(x.shape, reps, strict=True)])
    return x.repeat(reps)


def _flatten2d(call: Call) -> torch.Tensor:
    x, axis = call.tensor("x"), call.integer("axis", 1)
    if not -x.dim() <= axis <= x.dim():
        raise call.damaged(f"axis {axis} of {x.dim()}")
    place = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:place]), math.prod(x.shape[place:]))


def _shape(call: Call) -> torch.Tensor:
    return torch.tensor(call.tensor("x").shape, dtype=STORAGE[call.result_dtype()])


def _fill(call: Call) -> torch.Tensor:
    shape = call.integers("shape")
    if 0 in shape:
        call.refuse("a size of 0")
    return _filled(call, shape)


def _fill_like(call: Call) -> torch.Tensor:
    return _filled(call, list(call.tensor("ref_tensor").shape))


def _filled(call: Call, shape: list[int]) -> torch.Tensor:
    affordable(call, shape)
    value = call.optional_tensor("value")
    if value is None:
        return torch.zeros(shape, dtype=STORAGE[call.result_dtype()])
    return value.reshape(()).expand(shape)


def _range_1d(call: Call) -> torch.Tensor:
    start, end, step = (call.tensor(name) for name in ("start", "end", "step"))
    if not start.dtype == end.dtype == step.dtype:
        raise call.damaged("start, end and step differ in dtype")
    first, last, stride = (item.double().item() for item in (start, end, step))
    if stride == 0 or not all(map(math.isfinite, (first, last, stride))):
        raise call.damaged(f"there is no range from {first} to {last} by {stride}")
    count = max(0, math.ceil((last - first) / stride))
    if start.is_floating_point() and count != max(0, math.ceil(((end - start) / step).item())):
        call.refuse(f"whether {last} belongs to the range by {stride} depends on rounding")
    affordable(call, [count])
    return (first + torch.arange(count, dtype=torch.float64) * stride).to(start.dtype)


def _reverse(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    axes = call.integers("axes") if call.has("axes") else list(range(x.dim()))
    return x.flip([axis_within(call, axis, x.dim()) for axis in axes])


def _reverse_sequence(call: Call) -> torch.Tensor:
    x, lengths = call.tensor("x"), call.integers("lengths")
    along = one_axis(call, "seq_axis", x.dim(), 0)
    batch = one_axis(call, "batch_axis", x.dim(), 0)
    if along == batch:
        call.refuse("seq_axis and batch_axis are the same")
    if len(lengths) != x.shape[batch] or not all(0 <= n <= x.shape[along] for n in lengths):
        raise call.damaged(f"lengths {lengths} do not fit {list(x.shape)}")
    result = x.clone()
    for index, length in enumerate(lengths):
        inner = along - (along > batch)
        part = result.select(batch, index).narrow(inner, 0, length)
        part.copy_(part.flip(inner))
    return result


def _band_part(call: Call) -> torch.Tensor:
    x, lower, upper = call.tensor("x"), call.integer("lower", -1), call.integer("upper", -1)
    if x.dim() < 2:
        raise call.damaged("x is no matrix")
    below = torch.arange(x.shape[-2])[:, None] - torch.arange(x.shape[-1])  # m - n
    band = torch.ones_like(below, dtype=torch.bool)
    if lower >= 0:
        band &= below <= lower
    if upper >= 0:
        band &= -below <= upper
    return torch.where(band, x, torch.zeros((), dtype=x.dtype))


OPERATORS: dict[str, Operator] = {
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "tile": _tile,
    "flatten2d": _flatten2d,
    "shape": _shape,
    "fill": _fill,
    "fill_like": _fill_like,
    "range_1d": _range_1d,
    "reverse": _reverse,
    "reverse_sequence": _reverse_sequence,
    "band_part": _band_part,
    **_JOINING,
}
