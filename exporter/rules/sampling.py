"""Sampling an image at places that a grid names, and resizing with antialiasing.

Conventions: https://pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["SAMPLING_RULES"]

aten = torch.ops.aten

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2  # `GridSamplerInterpolation` of ATen/native/GridSampler.h
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2  # `GridSamplerPadding` there


def _grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Of [N, C, *sizes] and [N, *counts, rank] the sampled [N, C, *counts]."""
    rank = x.dim() - 2
    batch, channels, *sizes = x.shape
    counts = grid.shape[1:-1]
    if any(not isinstance(size, int) or not size for size in (*x.shape, *counts)):
        raise NotRewritten
    # The grid's last axis names x first, then y and z; sizes go the other way.
    places = [
        _unnormalized(grid.select(-1, rank - 1 - axis), size, align_corners)
        for axis, size in enumerate(sizes)
    ]
    pick = _picker(x, sizes)
    if interpolation_mode == _BICUBIC:
        result = _cubic(pick, places, sizes, padding_mode, align_corners)
    else:
        places = [
            _within(place, size, padding_mode, align_corners)
            for place, size in zip(places, sizes, strict=True)
        ]
        if interpolation_mode == _NEAREST:
            result = pick(*_checked([_to_even(place) for place in places], sizes))
        elif interpolation_mode == _BILINEAR:
            result = _linear(pick, places, sizes)
        else:
            raise NotRewritten
    return result.reshape([batch, channels, *counts])


def _unnormalized(place: Tensor, size: int, aligned: bool) -> Tensor:
    """-1 and 1 are the centres of the outermost pixels, or their outer edges."""
    return (place + 1) / 2 * (size - 1) if aligned else ((place + 1) * size - 1) / 2


def _within(place: Tensor, size: int, padding: int, aligned: bool) -> Tensor:
    if padding == _ZEROS:
        return place
    if padding == _REFLECTION:
        low, span = (0.0, size - 1) if aligned else (-0.5, size)
        if not span:
            return torch.zeros_like(place)
        away = (place - low).abs()
        flips = torch.floor(away / span)
        rest = away - flips * span
        odd = flips - torch.floor(flips / 2) * 2 == 1
        place = torch.where(odd, span - rest, rest) + low
    elif padding != _BORDER:
        raise NotRewritten
    return place.clamp(0, size - 1)


def _to_even(place: Tensor) -> Tensor:
    """The nearest whole number, halves to the even one, as `nearbyint`."""
    low = torch.floor(place)
    rest = place - low
    odd = low - torch.floor(low / 2) * 2 == 1
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    return low + up.to(place.dtype)


def _checked(places: Sequence[Tensor], sizes: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """Whole places inside the image as indices, and whether they were inside."""
    inside: Tensor | None = None
    indices = []
    for place, size in zip(places, sizes, strict=True):
        fits = (place >= 0) & (place <= size - 1)
        inside = fits if inside is None else inside & fits
        # Not by `clamp`, which keeps a NaN: no index is one.
        indices.append(torch.where(fits, place, torch.zeros_like(place)).to(torch.int64))
    assert inside is not None, "an image has axes"
    return indices, inside


def _picker(x: Tensor, sizes: Sequence[int]) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """The function from indices [N, *counts] to pixels [N, C, all of counts], zeros outside."""
    flat = x.flatten(2)
    batch, channels, _ = flat.shape

    def pick(indices: Sequence[Tensor], inside: Tensor) -> Tensor:
        place = torch.zeros_like(indices[0])
        for index, size in zip(indices, sizes, strict=True):
            place = place * size + index
        place = place.reshape(batch, 1, -1).expand(batch, channels, -1)
        values = torch.gather(flat, 2, place)
        return torch.where(inside.reshape(batch, 1, -1), values, torch.zeros_like(values))

    return pick


def _linear(pick: Any, places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    lows = [torch.floor(place) for place in places]
    total: Tensor | None = None
    for corner in itertools.product((0, 1), repeat=len(places)):
        at = [low + step for low, step in zip(lows, corner, strict=True)]
        weight = torch.ones_like(places[0])
        for place, low, step in zip(places, lows, corner, strict=True):
            weight = weight * (place - low if step else low + 1 - place)
        part = pick(*_checked(at, sizes)) * weight.reshape(weight.shape[0], 1, -1)
        total = part if total is None else total + part
    assert total is not None, "an image has corners"
    return total


def _cubic(
    pick: Any, places: Sequence[Tensor], sizes: Sequence[int], padding: int, aligned: bool
) -> Tensor:
    """Cubic convolution with a = -0.75 over the 4 x 4 pixels around."""
    lows = [torch.floor(place) for place in places]
    weights = [_cubic_weights(place - low) for place, low in zip(places, lows, strict=True)]
    total: Tensor | None = None
    for corner in itertools.product(range(4), repeat=len(places)):
        at = [
            _within(low + (step - 1), size, padding, aligned)
            for low, step, size in zip(lows, corner, sizes, strict=True)
        ]
        weight = torch.ones_like(places[0])
        for table, step in zip(weights, corner, strict=True):
            weight = weight * table[step]
        # Reflected at edges between pixels a whole place stays one but for rounding.
        picked = pick(*_checked([torch.floor(a + 0.5) for a in at], sizes))
        part = picked * weight.reshape(weight.shape[0], 1, -1)
        total = part if total is None else total + part
    assert total is not None, "an image has corners"
    return total


def _cubic_weights(t: Tensor) -> list[Tensor]:
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


# ---------------------------------------------------------------- antialiased resizing


def _antialiased(cubic: bool) -> Any:
    def function(
        x: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        *scales: float | Sequence[float] | None,
    ) -> Tensor:
        given: Any = scales[0] if len(scales) == 1 else scales
        given = given or (None, None)
        counts = output_size
        if counts is None:
            sizes = zip(x.shape[2:], given, strict=True)
            counts = [math.floor(size * scale) for size, scale in sizes]
        rows, columns = (
            _weights(size, count, align_corners, scale, cubic)
            for size, count, scale in zip(x.shape[2:], counts, given, strict=True)
        )
        return rows @ (x @ columns.transpose(0, 1))

    return function


def _weights(size: Any, count: Any, aligned: bool, scale: Any, cubic: bool) -> Tensor:
    """[count, size]: how much of each pixel goes into each result.

    `compute_index_ranges_weights` of ATen/native/cpu/UpSampleKernel.cpp.
    """
    if not isinstance(size, int) or not isinstance(count, int):
        raise NotRewritten
    if aligned:
        ratio = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        ratio = 1 / scale if scale else size / count
    stretch = max(ratio, 1.0)
    support = (2.0 if cubic else 1.0) * stretch
    centre = (torch.arange(count).to(torch.float32)[:, None] + 0.5) * ratio
    pixel = torch.arange(size).to(torch.float32)[None, :]
    first = torch.floor((centre - support + 0.5).clamp(0, size))
    last = torch.floor((centre + support + 0.5).clamp(0, size))
    away = ((pixel - centre + 0.5) / stretch).abs()
    weight = _cubic_filter(away) if cubic else (1 - away).clamp(0, 1)
    weight = torch.where((pixel >= first) & (pixel < last), weight, torch.zeros_like(weight))
    return weight / weight.sum(1, keepdim=True)


def _cubic_filter(x: Tensor) -> Tensor:
    a = -0.5  # Pillow's, which PyTorch takes where it antialiases
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


SAMPLING_RULES: dict[Any, Rule] = {
    **dict.fromkeys(
        (
            *(aten.grid_sampler.default, aten.grid_sampler_2d.default),
            aten.grid_sampler_3d.default,
        ),
        traced(_grid_sampler),
    ),
    **{
        getattr(packet, overload): traced(_antialiased(cubic))
        for packet, cubic in (
            (aten._upsample_bilinear2d_aa, False),
            (aten._upsample_bicubic2d_aa, True),
        )
        for overload in ("default", "vec")
    },
}
