"""RESIZE and GRID_SAMPLE."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]
Array = np.ndarray[Any, Any]


def resize(mode: str, shape: tuple[int, ...] | None = None, **attributes: Any) -> Any:
    def build(network: Any, x: Any) -> Any:
        made = network.add_resize(x)
        made.resize_mode = getattr(trt.InterpolationMode, mode)
        if shape is not None:
            made.shape = shape
        for name, value in attributes.items():
            setattr(made, name, value)
        return made.get_output(0)

    return build


_TRANSFORMATIONS: dict[str, Callable[[int, int, int], Fraction]] = {
    "ALIGN_CORNERS": lambda i, old, new: Fraction(i * (old - 1), new - 1),
    "ASYMMETRIC": lambda i, old, new: i * Fraction(old, new),
    "HALF_PIXEL": lambda i, old, new: (i + Fraction(1, 2)) * Fraction(old, new) - Fraction(1, 2),
}
_ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "FLOOR": math.floor,
    "CEIL": math.ceil,
    "HALF_UP": lambda x: math.floor(x + Fraction(1, 2)),
    "HALF_DOWN": lambda x: math.ceil(x - Fraction(1, 2)),
}


def along(x: Array, axis: int, new: int, transformation: str, taps: Callable[..., Any]) -> Array:
    """`taps(coordinate)` gives elements and their weights; the edge stands for what is outside."""
    old = x.shape[axis]
    slices = []
    for i in range(new):
        place = _TRANSFORMATIONS[transformation](i, old, new)
        slices.append(
            sum(
                float(weight) * x.take(min(max(index, 0), old - 1), axis)
                for index, weight in taps(place, old)
            )
        )
    return np.stack(slices, axis)


def linear(place: Fraction, old: int) -> list[tuple[int, Fraction]]:
    low = math.floor(place)
    return [(low, 1 - (place - low)), (low + 1, place - low)]


def cubic(a: float, excluding: bool) -> Callable[..., list[tuple[int, float]]]:
    def weight(distance: float) -> float:
        d = abs(distance)
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    def taps(place: Fraction, old: int) -> list[tuple[int, float]]:
        low = math.floor(place)
        found = [(low + step, weight(float(place - low - step))) for step in (-1, 0, 1, 2)]
        if excluding:
            found = [(index, w if 0 <= index < old else 0.0) for index, w in found]
            total = sum(w for _, w in found)
            found = [(index, w / total) for index, w in found]
        return found

    return taps


_X = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 2, 5, 4)).astype(np.float32))
_SHAPES = [(1, 2, 10, 8), (1, 2, 3, 7), (1, 2, 5, 2)]


def expected(shape: tuple[int, ...], transformation: str, taps: Callable[..., Any]) -> Any:
    x = _X.double().numpy()
    for axis in (2, 3):
        x = along(x, axis, shape[axis], transformation, taps)
    return torch.from_numpy(x).float()


@pytest.mark.parametrize("rounding", sorted(_ROUNDINGS))
@pytest.mark.parametrize("transformation", sorted(_TRANSFORMATIONS))
@pytest.mark.parametrize("shape", _SHAPES)
def test_nearest(
    evaluated: Evaluated, shape: tuple[int, ...], transformation: str, rounding: str
) -> None:
    def taps(place: Fraction, old: int) -> list[tuple[int, int]]:
        return [(_ROUNDINGS[rounding](place), 1)]

    build = resize(
        "NEAREST",
        shape,
        nearest_rounding=getattr(trt.ResizeRoundMode, rounding),
        coordinate_transformation=getattr(trt.ResizeCoordinateTransformation, transformation),
    )
    assert torch.equal(evaluated(build, _X), expected(shape, transformation, taps))


@pytest.mark.parametrize("transformation", sorted(_TRANSFORMATIONS))
@pytest.mark.parametrize("shape", _SHAPES)
def test_linear_and_cubic(
    evaluated: Evaluated, shape: tuple[int, ...], transformation: str
) -> None:
    mapped = {
        "coordinate_transformation": getattr(trt.ResizeCoordinateTransformation, transformation)
    }
    found = evaluated(resize("LINEAR", shape, **mapped), _X)
    torch.testing.assert_close(found, expected(shape, transformation, linear))
    for a, excluding in ((-0.75, False), (-0.5, True)):
        build = resize("CUBIC", shape, cubic_coeff=a, exclude_outside=excluding, **mapped)
        wanted = expected(shape, transformation, cubic(a, excluding))
        torch.testing.assert_close(evaluated(build, _X), wanted, rtol=1e-5, atol=1e-5)


def test_halves_are_interpolated_in_float32(evaluated: Evaluated) -> None:
    wanted = evaluated(resize("LINEAR", (1, 2, 9, 7)), _X.half().float()).half()
    assert torch.equal(evaluated(resize("LINEAR", (1, 2, 9, 7)), _X.half()), wanted)


def test_a_single_element(evaluated: Evaluated) -> None:
    shape = (1, 2, 1, 1)
    upper = {"selector_for_single_pixel": trt.ResizeSelector.UPPER}
    half = {"coordinate_transformation": trt.ResizeCoordinateTransformation.HALF_PIXEL}
    corners = {"coordinate_transformation": trt.ResizeCoordinateTransformation.ALIGN_CORNERS}
    first = _X[:, :, :1, :1]
    assert torch.equal(evaluated(resize("LINEAR", shape, **upper, **half), _X), first)
    assert torch.equal(evaluated(resize("LINEAR", shape, **upper, **corners), _X), first)
    wanted = expected(shape, "HALF_PIXEL", linear)
    torch.testing.assert_close(evaluated(resize("LINEAR", shape, **half), _X), wanted)
    with pytest.raises(UnverifiableError, match="UPPER"):
        evaluated(resize("LINEAR", shape, **corners), _X)


def test_scales_and_sizes_of_an_input(evaluated: Evaluated) -> None:
    def build(network: Any, x: Any) -> Any:
        made = network.add_resize(x)
        sizes = np.array([1, 2, 10, 8], np.int32)
        made.set_input(1, network.add_constant((4,), sizes).get_output(0))
        return made.get_output(0)

    wanted = evaluated(resize("NEAREST", (1, 2, 10, 8)), _X)
    assert torch.equal(evaluated(build, _X), wanted)
    assert torch.equal(evaluated(resize("NEAREST", scales=[1, 1, 2, 2]), _X), wanted)
    with pytest.raises(UnverifiableError, match="not whole"):
        evaluated(resize("NEAREST", scales=[1, 1, 1.5, 1]), _X)
    corners = {"coordinate_transformation": trt.ResizeCoordinateTransformation.ALIGN_CORNERS}
    wanted = evaluated(resize("LINEAR", (1, 2, 7, 4), **corners), _X)
    assert torch.equal(evaluated(resize("LINEAR", scales=[1, 1, 1.5, 1], **corners), _X), wanted)


def test_a_coordinate_that_float32_rounds_elsewhere_is_refused(evaluated: Evaluated) -> None:
    """2 / 82 in float32, 41 times, is less than 1."""
    with pytest.raises(UnverifiableError, match="float32"):
        evaluated(resize("NEAREST", (1, 1, 82)), torch.randn(1, 1, 2))


@pytest.mark.parametrize(
    ("mode", "change"),
    [
        ("NEAREST", {"resize_mode": "LINEAR"}),
        ("NEAREST", {"nearest_rounding": "CEIL"}),
        ("NEAREST", {"nearest_rounding": "NEW"}),
        ("LINEAR", {"shape": (1, 2, 9, 8)}),
        ("LINEAR", {"scales": (1, 1, 3, 2)}),
        ("LINEAR", {"coordinate_transformation": "HALF_PIXEL"}),
        ("LINEAR", {"selector_for_single_pixel": "UPPER"}),
        ("CUBIC", {"cubic_coeff": -0.5}),
        ("CUBIC", {"exclude_outside": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_resize_is_seen(seen: Callable[..., bool], mode: str, change: dict[str, Any]) -> None:
    half = trt.ResizeCoordinateTransformation.HALF_PIXEL
    single = "selector_for_single_pixel" in change
    shape = (1, 2, 1, 8) if single else (1, 2, 10, 8)
    more = {"coordinate_transformation": half} if single else {}
    assert seen(resize(mode, shape, **more), (_X,), "RESIZE", **change)


def grid_sample(mode: str, outside: str, corners: bool) -> Any:
    def build(network: Any, x: Any, grid: Any) -> Any:
        made = network.add_grid_sample(x, grid)
        made.interpolation_mode = getattr(trt.InterpolationMode, mode)
        made.sample_mode = getattr(trt.SampleMode, outside)
        made.align_corners = corners
        return made.get_output(0)

    return build


def sampled(x: Array, grid: Array, mode: str, outside: str, corners: bool) -> Array:
    """One plane, sampled at places (x, y) of [-1, 1]."""
    height, width = x.shape

    def place(value: float, size: int) -> float:
        at = (value + 1) / 2 * (size - 1) if corners else ((value + 1) * size - 1) / 2
        if outside == "CLAMP":
            return min(max(at, 0), size - 1)
        if outside == "REFLECT":
            low, high = (0, size - 1) if corners else (-0.5, size - 0.5)
            while not low <= at <= high:
                at = 2 * low - at if at < low else 2 * high - at
            return min(max(at, 0), size - 1)
        return at

    def element(row: int, column: int) -> float:
        if 0 <= row < height and 0 <= column < width:
            return float(x[row, column])
        return 0.0

    result = np.zeros(grid.shape[:2])
    for i, j in np.ndindex(*result.shape):
        column, row = place(grid[i, j, 0], width), place(grid[i, j, 1], height)
        if mode == "NEAREST":
            result[i, j] = element(round(row), round(column))
            continue
        top, left = math.floor(row), math.floor(column)
        for r in (top, top + 1):
            for c in (left, left + 1):
                result[i, j] += (1 - abs(row - r)) * (1 - abs(column - c)) * element(r, c)
    return result


@pytest.mark.parametrize("mode", ["NEAREST", "LINEAR"])
@pytest.mark.parametrize("outside", ["FILL", "CLAMP", "REFLECT"])
@pytest.mark.parametrize("corners", [True, False])
def test_grid_sample(evaluated: Evaluated, mode: str, outside: str, corners: bool) -> None:
    grid = torch.rand(1, 4, 5, 2) * 5 - 2.5
    found = evaluated(grid_sample(mode, outside, corners), _X, grid)
    planes = [
        sampled(plane, grid[0].double().numpy(), mode, outside, corners)
        for plane in _X[0].double().numpy()
    ]
    wanted = torch.from_numpy(np.stack(planes)[None]).float()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_place_half_way_between_elements_is_refused(evaluated: Evaluated) -> None:
    build = grid_sample("NEAREST", "FILL", False)
    with pytest.raises(UnverifiableError, match="half way"):
        evaluated(build, torch.randn(1, 1, 4, 4), torch.zeros(1, 1, 1, 2))


@pytest.mark.parametrize(
    "change",
    [
        {"interpolation_mode": "NEAREST"},
        {"interpolation_mode": "CUBIC"},
        {"sample_mode": "CLAMP"},
        {"sample_mode": "WRAP"},
        {"align_corners": True},
    ],
)
def test_grid_sample_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    inputs = (_X, torch.rand(1, 3, 3, 2) * 3 - 1.5)
    assert seen(grid_sample("LINEAR", "FILL", False), inputs, "GRID_SAMPLE", **change)


@pytest.mark.parametrize(
    ("op", "attributes", "sizes"),
    [
        ("Resize", {"mode": "nearest"}, [1, 2, 10, 8]),
        ("Resize", {"mode": "linear"}, [1, 2, 7, 3]),
        ("Resize", {"mode": "cubic"}, [1, 2, 7, 3]),
        ("Resize", {"mode": "linear"} | {"c": "align_corners"}, [1, 2, 7, 3]),
        ("Resize", {"mode": "linear"} | {"c": "pytorch_half_pixel"}, [1, 2, 1, 6]),
        ("GridSample", {"mode": "cubic", "padding_mode": "reflection"}, None),
        ("GridSample", {"mode": "linear", "align_corners": 1}, None),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None],
    op: str,
    attributes: dict[str, Any],
    sizes: list[int] | None,
) -> None:
    names = {"c": "coordinate_transformation_mode"}
    attributes = {names.get(name, name): value for name, value in attributes.items()}
    if sizes is None:
        grid = (np.random.default_rng(1).random((1, 3, 3, 2)) * 3 - 1.5).astype(np.float32)
        node = helper.make_node(op, ["x", "g"], ["y"], **attributes)
        against_onnxruntime(node, {"x": _X.numpy(), "g": grid}, rtol=1e-4)
        return
    node = helper.make_node(op, ["x", "", "", "s"], ["y"], **attributes)
    against_onnxruntime(node, {"x": _X.numpy()}, {"s": np.array(sizes)}, rtol=1e-4)
