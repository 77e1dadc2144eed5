"""Resizing and cropping of images."""

from __future__ import annotations

import math

import torch

from .axes import bounded
from .call import Call, Operator
from .elementwise import FLOATS, of_dtype
from .grids import SAMPLING_MODES, grid, interpolated, refuse_infinite
from .sampling import OPERATORS as _SAMPLING

__all__ = ["OPERATORS"]

_FACTORS = (("scale_factor_height", -2), ("scale_factor_width", -1))
_TARGETS = (("target_size_height", -2), ("target_size_width", -1))


def upsample_nearest_neighbor(call: Call) -> torch.Tensor:
    """The nearest pixel in the last two dimensions of x, [*D, H, W].

    The documentation does not say which is nearest. Where the ways to find it differ (through the
    factor, through the sizes, between pixel centres), it is refused; for whole factors they agree.
    """
    x = _image(call)
    for name, dim in _FACTORS:
        size, count = x.shape[dim], _scaled(call, name, x.shape[dim], dim)
        factor = call.number(name, 1.0)
        steps = torch.arange(count, dtype=torch.float64)
        x = _picked(
            call,
            x,
            dim,
            (steps / factor).floor(),
            (steps * size / count).floor(),
            ((steps + 0.5) * size / count).floor(),
        )
    return x


def resize_nearest_neighbor(call: Call) -> torch.Tensor:
    """Like `upsample_nearest_neighbor`, to given sizes."""
    x = _image(call)
    for name, dim in _TARGETS:
        size, count = x.shape[dim], _target(call, name, dim)
        steps = torch.arange(count, dtype=torch.float64)
        corner, centre = steps * size / count, (steps + 0.5) * size / count
        x = _picked(call, x, dim, corner.floor(), centre.floor())
    return x


def upsample_bilinear(call: Call) -> torch.Tensor:
    """Between the pixels in the last two dimensions of x, [*D, H, W]."""
    x = _image(call)
    refuse_infinite(call, x)
    align = call.flag("align_corners", True)
    half = call.flag("half_pixel_centers", not align) if call.opset >= 6 else not align
    if align and half:
        call.refuse("align_corners with half_pixel_centers")
    # The documentation names what each equals in TensorFlow, whose DEFAULT is neither.
    mode = "STRICT_ALIGN_CORNERS" if align else "UNALIGN_CORNERS" if half else "DEFAULT"
    found = x.float()
    for name, dim in _FACTORS:
        count = _scaled(call, name, x.shape[dim], dim)
        found = interpolated(found, dim, grid(mode, x.shape[dim] - 1, count))
    return found.to(x.dtype)


def resize_bilinear(call: Call) -> torch.Tensor:
    """Like `upsample_bilinear`, to given sizes, with all sampling modes."""
    x = _image(call)
    refuse_infinite(call, x)
    mode = call.text("sampling_mode", "DEFAULT", choices=SAMPLING_MODES)
    found = x.float()
    for name, dim in _TARGETS:
        found = interpolated(found, dim, grid(mode, x.shape[dim] - 1, _target(call, name, dim, 1)))
    return found.to(x.dtype)


def resize(call: Call) -> torch.Tensor:
    """The last `resized_dims` dimensions of x to the last entries of `shape` (0: as they are)."""
    x = of_dtype(call, "x", (*FLOATS, torch.int32))
    shape, dims = call.integers("shape"), call.integer("resized_dims")
    linear = call.text("interpolation_mode", "LINEAR", choices=("LINEAR", "NEAREST_NEIGHBOR"))
    mode = call.text("sampling_mode", "DEFAULT", choices=SAMPLING_MODES)
    if not 0 <= dims <= len(shape) <= x.dim() or min(shape, default=0) < 0:
        raise call.damaged(f"shape={shape} with resized_dims={dims} for a rank of {x.dim()}")
    if dims > 2:
        call.refuse(f"resized_dims={dims}")
    if linear == "LINEAR":
        refuse_infinite(call, x)
        if x.dtype == torch.int32:
            call.refuse("how interpolated integers are rounded")
    found = x if linear == "NEAREST_NEIGHBOR" else x.float()
    for dim in range(-dims, 0):
        count = _room(call, shape[dim] or x.shape[dim], dim)
        if not x.numel():
            call.refuse("an empty image")
        points = grid(mode, x.shape[dim] - 1, count)
        if linear == "LINEAR":
            found = interpolated(found, dim, points)
        else:  # undocumented: rounded down, or to the nearest with ties down or up
            ways = (points.floor(), (points - 0.5).ceil(), (points + 0.5).floor())
            found = _picked(call, found, dim, *ways)
    return found.to(x.dtype)


def crop(call: Call) -> torch.Tensor:
    """x, [*D, H, W], without the given amounts at both ends of its last two dimensions."""
    x = _image(call)
    for name, dim in (("crop_height", -2), ("crop_width", -1)):
        amounts = call.integers(name)
        if len(amounts) != 2 or min(amounts) < 0:
            raise call.damaged(f"{name}={amounts}")
        left = x.shape[dim] - sum(amounts)
        if left < 1:
            raise call.damaged(f"{name}={amounts} leaves nothing of {x.shape[dim]}")
        x = x.narrow(dim, amounts[0], left)
    return x


OPERATORS: dict[str, Operator] = {
    "crop": crop,
    "resize": resize,
    "resize_bilinear": resize_bilinear,
    "resize_nearest_neighbor": resize_nearest_neighbor,
    "upsample_bilinear": upsample_bilinear,
    "upsample_nearest_neighbor": upsample_nearest_neighbor,
    **_SAMPLING,
}


def _image(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if x.dim() < 3:
        raise call.damaged(f"x has rank {x.dim()}, not 3 or more")
    if not x.numel():
        call.refuse("an empty image")
    return x


def _scaled(call: Call, name: str, size: int, dim: int) -> int:
    """floor(size * factor), the product in the precision of either float32 or float64.

    Where the two differ, the size that the file declares decides.
    """
    factor = call.value(name, torch.tensor(1.0))
    if factor.numel() != 1 or not math.isfinite(float(factor)) or float(factor) <= 0:
        raise call.damaged(f"{name}={factor.tolist()}")
    exact = math.floor(size * float(factor))
    single = math.floor(float(torch.tensor(float(size)) * factor.float()))
    declared = getattr(call.result_type(), "shape", None)
    count = exact if exact == single or declared is None else declared[dim]
    if count not in (exact, single) or (declared is None and exact != single):
        call.refuse(f"whether {size} times {float(factor)} is {exact} or {single}")
    if count < 1:
        call.refuse("an empty result")
    return _room(call, int(count), dim)


def _room(call: Call, count: int, dim: int) -> int:
    """`count`, once it is known that x with that size in `dim` is not too large."""
    shape = list(call.tensor("x").shape)
    shape[dim] = count
    bounded(call, shape)
    return count


def _target(call: Call, name: str, dim: int, default: int | None = None) -> int:
    found = call.integer(name) if default is None else call.integer(name, default)
    if found < 1:
        call.refuse(f"{name}={found}")
    return _room(call, found, dim)


def _picked(call: Call, x: torch.Tensor, dim: int, *ways: torch.Tensor) -> torch.Tensor:
    """Pixels of `x` along `dim`, on whose indices all `ways` to find them agree."""
    first, *others = (way.long().clamp(0, x.shape[dim] - 1) for way in ways)
    if not all(torch.equal(first, other) for other in others):
        call.refuse(f"which pixel is nearest, from {x.shape[dim]} to {len(first)}")
    return x.index_select(dim, first)
