"""Layers that sample an image between its elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .call import Call, Operator
from .widening import known, require_floats, widened

__all__ = ["OPERATORS"]


@dataclass(frozen=True)
class _Places:
    """Coordinates in the input: exact ones, numerator / denominator, and as float32 gives them."""

    numerator: torch.Tensor
    denominator: int
    floats: torch.Tensor


_Sampler = Callable[[torch.Tensor, int, _Places], torch.Tensor]
"""Values along an axis at the places."""
_Tap = tuple[torch.Tensor, torch.Tensor]
"""Elements along an axis, and what each weighs."""


def _resize(call: Call) -> torch.Tensor:
    """Resamples one axis after the other; the interpolations are products over the axes."""
    value = call.tensor()
    sample = call.choice("resize_mode", {"NEAREST": _nearest, "LINEAR": _linear, "CUBIC": _cubic})(
        call
    )
    sizes = _sizes(call, value)
    locate = call.choice("coordinate_transformation", _COORDINATES)
    upper = call.choice("selector_for_single_pixel", {"FORMULA": False, "UPPER": True})
    for axis, size in enumerate(sizes):
        old = value.shape[axis]
        if size == old:
            continue  # every transformation maps an axis of one size to itself
        if not old or not size:
            call.refuse("an axis without elements")
        if size == 1 and upper:
            places = _Places(torch.zeros(1, dtype=torch.int64), 1, torch.zeros(1))
        else:
            places = locate(torch.arange(size), old, size)
        if places.denominator == 0:
            call.refuse("ALIGN_CORNERS of one element without the selector UPPER")
        value = sample(value, axis, places)
    return value


def _sizes(call: Call, value: torch.Tensor) -> list[int]:
    """Sizes from the second input, else from the scales, else the ones that are set."""
    given, scales = call.optional(1), call.value("scales")
    if given is not None:
        call.ignore("shape")
        return call.integers_of(1)
    if not scales:
        return call.integers("shape")
    call.ignore("shape")  # not set beside scales
    corners = call.value("coordinate_transformation") == "ALIGN_CORNERS"
    sizes = []
    for size, scale in zip(value.shape, scales, strict=True):
        whole = abs(size * scale - round(size * scale)) <= 1e-5 * size * scale
        if not whole and not corners:
            # The other formulas divide sizes, and ONNX the scale, which then differ.
            call.refuse(f"{size} elements times {scale} are not whole")
        sizes.append(round(size * scale) if whole else math.floor(size * scale))
    return sizes


# Coordinates by the formulas of ResizeCoordinateTransformation.
_COORDINATES: dict[str, Callable[[torch.Tensor, int, int], _Places]] = {
    "ALIGN_CORNERS": lambda index, old, new: _Places(
        index * (old - 1), new - 1, index.float() * (torch.tensor(old - 1.0) / (new - 1.0))
    ),
    "ASYMMETRIC": lambda index, old, new: _Places(
        index * old, new, index.float() * (torch.tensor(float(old)) / new)
    ),
    "HALF_PIXEL": lambda index, old, new: _Places(
        (2 * index + 1) * old - new,
        2 * new,
        (index.float() + 0.5) * (torch.tensor(float(old)) / new) - 0.5,
    ),
}

# Integers of a fraction n / d, and of a float.
_ROUNDINGS: dict[
    str,
    tuple[Callable[[torch.Tensor, int], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]],
] = {
    "FLOOR": (lambda n, d: n // d, torch.floor),
    "CEIL": (lambda n, d: -(-n // d), torch.ceil),
    "HALF_UP": (lambda n, d: (2 * n + d) // (2 * d), lambda x: torch.floor(x + 0.5)),
    "HALF_DOWN": (lambda n, d: -((d - 2 * n) // (2 * d)), lambda x: torch.ceil(x - 0.5)),
}


def _nearest(call: Call) -> _Sampler:
    exact, evaluated = call.choice("nearest_rounding", _ROUNDINGS)
    call.ignore("cubic_coeff", "exclude_outside")  # of CUBIC

    def sample(value: torch.Tensor, axis: int, places: _Places) -> torch.Tensor:
        index = exact(places.numerator, places.denominator)
        if not torch.equal(index, evaluated(places.floats).long()):
            call.refuse("a coordinate that float32 rounds to another element")
        return value.index_select(axis, index.clamp(0, value.shape[axis] - 1))

    return sample


def _linear(call: Call) -> _Sampler:
    require_floats(call, call.tensor())
    call.ignore("nearest_rounding", "cubic_coeff", "exclude_outside")  # of NEAREST and CUBIC

    def sample(value: torch.Tensor, axis: int, places: _Places) -> torch.Tensor:
        low, share = _split(places)
        return _weighted(value, axis, [(low, 1 - share), (low + 1, share)])

    return sample


def _cubic(call: Call) -> _Sampler:
    """Cubic convolution (Keys, 1981) of four elements; ONNX names the same formula.

    Outside the input its edge is repeated, unless those elements are left out.
    """
    require_floats(call, call.tensor())
    a, excluding = call.number("cubic_coeff"), call.flag("exclude_outside")
    call.ignore("nearest_rounding")  # of NEAREST

    def sample(value: torch.Tensor, axis: int, places: _Places) -> torch.Tensor:
        low, share = _split(places)
        taps = [(low + step, _keys(share - step, a)) for step in (-1, 0, 1, 2)]
        return _weighted(value, axis, _inside(taps, value.shape[axis]) if excluding else taps)

    return sample


def _inside(taps: list[_Tap], size: int) -> list[_Tap]:
    """Elements outside the input weigh nothing, the others together 1."""
    kept = [torch.where((index >= 0) & (index < size), weight, 0.0) for index, weight in taps]
    total = torch.stack(kept).sum(0)
    return [(index, weight / total) for (index, _), weight in zip(taps, kept, strict=True)]


def _keys(distance: torch.Tensor, a: float) -> torch.Tensor:
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0.0))


def _split(places: _Places) -> _Tap:
    """The element before each place, and how far the place lies beyond it (0 to 1)."""
    low = places.numerator // places.denominator
    beyond = places.numerator - low * places.denominator
    return low, beyond.to(torch.float32) / places.denominator


def _weighted(value: torch.Tensor, axis: int, taps: list[_Tap]) -> torch.Tensor:
    shape = [-1 if index == axis else 1 for index in range(value.dim())]
    result = torch.zeros(())
    for index, weight in taps:
        part = value.index_select(axis, index.clamp(0, value.shape[axis] - 1))
        result = result + part * weight.reshape(shape)
    return result


def _grid_sample(call: Call) -> torch.Tensor:
    """Samples at the places of a grid, as in ONNX and torch."""
    value, grid = call.tensor(0), call.tensor(1)
    require_floats(call, value, grid)
    known(call, grid)
    mode = call.choice(
        "interpolation_mode", {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic"}
    )
    outside = call.choice(
        "sample_mode", {"FILL": "zeros", "CLAMP": "border", "REFLECT": "reflection"}
    )
    corners = call.flag("align_corners")
    if mode == "nearest":
        _require_no_halves(call, value, grid, corners)
    return torch.nn.functional.grid_sample(value, grid, mode, outside, corners)


def _require_no_halves(call: Call, value: torch.Tensor, grid: torch.Tensor, corners: bool) -> None:
    """Which neighbour is taken half way between two is not documented."""
    sizes = torch.tensor(list(reversed(value.shape[2:])), dtype=torch.float32)
    places = (grid + 1) / 2 * (sizes - 1) if corners else ((grid + 1) * sizes - 1) / 2
    if bool((places - places.floor() == 0.5).any()):
        call.refuse("a place half way between two elements")


OPERATORS: dict[str, Operator] = {
    "RESIZE": widened(_resize),
    "GRID_SAMPLE": widened(_grid_sample),
}
