"""Slices and zero padding."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, Operator

__all__ = ["OPERATORS"]


def _slice(call: Call) -> torch.Tensor:
    """Along each axis the elements x = y * stride + start, by the operator page of Slice.

    start, shape and stride come from inputs 1 to 3 where set, axes from input 5; without axes
    they are of all axes.
    """
    value = call.tensor()
    starts, sizes, strides = (
        _numbers(call, index, name) for index, name in ((1, "start"), (2, "shape"), (3, "stride"))
    )
    axes = _axes(call, value.dim())
    if not len(starts) == len(sizes) == len(strides) == len(axes):
        raise call.contradiction(f"it has {len(starts)} starts for {len(axes)} axes")
    if min(sizes, default=0) < 0:
        raise call.contradiction(f"sizes of {sizes}")
    mode = call.choice("mode", _MODES)
    fill = call.optional(4)
    if fill is not None and mode is not None:
        call.refuse("a fill value in another mode than FILL")
    outside = torch.zeros((), dtype=torch.bool)
    for axis, start, size, stride in zip(axes, starts, sizes, strides, strict=True):
        places = torch.arange(size) * stride + start
        extent = value.shape[axis]
        beyond = (places < 0) | (places >= extent)
        if bool(beyond.any()):
            if mode is None:
                along = beyond.reshape([-1 if i == axis else 1 for i in range(value.dim())])
                outside = outside | along
                places = places.where(~beyond, 0)
                if extent == 0:
                    sizes_of_one = [1 if i == axis else n for i, n in enumerate(value.shape)]
                    value = value.new_zeros(sizes_of_one)
            else:
                places = mode(call, places, extent)
        value = _taken(value, axis, places, start, size, stride)
    return value if mode is not None else _filled(call, value, outside, fill)


def _taken(
    value: torch.Tensor, axis: int, places: torch.Tensor, start: int, size: int, stride: int
) -> torch.Tensor:
    """A view where that is possible."""
    if stride > 0 and size and start >= 0 and start + (size - 1) * stride < value.shape[axis]:
        along = slice(start, start + (size - 1) * stride + 1, stride)
        return value[(slice(None),) * axis + (along,)]
    return value.index_select(axis, places)


def _filled(
    call: Call, value: torch.Tensor, outside: torch.Tensor, fill: torch.Tensor | None
) -> torch.Tensor:
    """Zero where no value is given: so the builder computes shapes, and the parser relies on it."""
    if fill is None:
        return value.masked_fill(outside, 0)
    if fill.numel() != 1 or fill.dtype != value.dtype:
        call.refuse(f"a fill value of {fill.dtype}{list(fill.shape)}")
    return torch.where(outside, fill.reshape(()), value)


def _numbers(call: Call, index: int, name: str) -> list[int]:
    if call.optional(index) is None:
        return call.integers(name)
    call.ignore(name)
    return call.integers_of(index)


def _axes(call: Call, rank: int) -> list[int]:
    """Axes that are sliced, all where none are named.

    The parser passes negative ones on, and TensorRT infers shapes from them as from the end.
    """
    if call.optional(5) is not None:
        call.ignore("axes")
        found = call.integers_of(5)
    else:
        given = call.value("axes")
        found = list(range(rank)) if given is None else [int(axis) for axis in given]
    counted = [axis % rank for axis in found if -rank <= axis < rank]
    if len(set(counted)) != len(found):
        call.refuse(f"axes {found} of a rank of {rank}")
    return counted


def _strict(call: Call, places: torch.Tensor, extent: int) -> torch.Tensor:
    raise call.contradiction(
        f"it reads elements {places.tolist()[:8]} of an axis of {extent}, out of bounds"
    )


def _wrap(call: Call, places: torch.Tensor, extent: int) -> torch.Tensor:
    """mod(x, d)"""
    _require_some(call, extent)
    return places.remainder(extent)


def _clamp(call: Call, places: torch.Tensor, extent: int) -> torch.Tensor:
    _require_some(call, extent)
    return places.clamp(0, extent - 1)


def _reflect(call: Call, places: torch.Tensor, extent: int) -> torch.Tensor:
    """c = mod(|x|, 2d - 2); 2d - 2 - c where c >= d, else c."""
    _require_some(call, extent)
    period = 2 * extent - 2
    if period == 0:
        call.refuse("a reflection in an axis of one element")
    turned = places.abs().remainder(period)
    return torch.where(turned >= extent, period - turned, turned)


def _require_some(call: Call, extent: int) -> None:
    if extent == 0:
        raise call.contradiction("it reads from an axis of no elements")


# What a place outside stands for; FILL writes the fill value there.
_MODES: dict[str, Callable[[Call, torch.Tensor, int], torch.Tensor] | None] = {
    "STRICT_BOUNDS": _strict,
    "WRAP": _wrap,
    "CLAMP": _clamp,
    "FILL": None,
    "REFLECT": _reflect,
}


def _padding(call: Call) -> torch.Tensor:
    """Zeros around the last two axes; a negative size cuts."""
    value = call.tensor()
    before, after = call.integers("pre_padding_nd"), call.integers("post_padding_nd")
    if len(before) != 2 or len(after) != 2 or value.dim() < 2:
        call.refuse(f"padding of {before} and {after} of a rank of {value.dim()}")
    if any(sum(pair) < -n for *pair, n in zip(before, after, value.shape[-2:], strict=True)):
        raise call.contradiction("it cuts more than there is")
    return torch.nn.functional.pad(value, (before[1], after[1], before[0], after[0]))


OPERATORS: dict[str, Operator] = {"PADDING": _padding, "SLICE": _slice}
