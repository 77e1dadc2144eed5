"""SLICE in every mode, and PADDING, against numpy and against sizes that TensorRT infers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import ConversionError, UnverifiableError
from isomorph.targets.tensorrt.logger import logger_of
from onnx import helper

Evaluated = Callable[..., Any]
X = torch.arange(20.0).reshape(4, 5)


def sliced(
    start: tuple[int, ...],
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    mode: str = "STRICT_BOUNDS",
    axes: tuple[int, ...] | None = None,
) -> Callable[..., Any]:
    """Further inputs stand in for start, shape and stride."""

    def build(net: Any, x: Any, *given: Any) -> Any:
        layer = net.add_slice(x, start, shape, stride)
        layer.mode = getattr(trt.SampleMode, mode)
        if axes is not None:
            layer.axes = axes
        for index, value in enumerate(given):
            layer.set_input(index + 1, value)
        return layer.get_output(0)

    return build


@pytest.mark.parametrize(
    ("start", "shape", "stride", "expected"),
    [
        ((1, 2), (2, 3), (1, 1), X[1:3, 2:5]),
        ((0, 1), (2, 2), (3, 2), X[0:4:3, 1:5:2]),
        ((3, 4), (4, 3), (-1, -2), X.flip(0)[:, [4, 2, 0]]),
        ((2, 0), (3, 5), (0, 1), X[[2, 2, 2]]),
        ((4, 0), (0, 5), (1, 1), X[4:]),
    ],
)
def test_strict_bounds(
    evaluated: Evaluated,
    start: tuple[int, ...],
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    expected: torch.Tensor,
) -> None:
    assert torch.equal(evaluated(sliced(start, shape, stride), X), expected)
    given = [torch.tensor(numbers) for numbers in (start, shape, stride)]
    free = [(-1, -1), (2,), (2,), (2,)]
    found = evaluated(sliced((0, 0), (1, 1), (1, 1)), X, *given, shapes=free)
    assert torch.equal(found, expected)


def test_axes(evaluated: Evaluated) -> None:
    found = evaluated(sliced((1,), (2,), (2,), axes=(1,)), X)
    assert torch.equal(found, X[:, 1:5:2])
    found = evaluated(sliced((1, 0), (2, 3), (2, 1), axes=(1, 0)), X)
    assert torch.equal(found, X[0:3, 1:5:2])


def test_out_of_bounds(evaluated: Evaluated) -> None:
    for start, stride in (([3, 0], [1, 1]), ([-1, 0], [1, 1]), ([1, 0], [-2, 1])):
        given = [torch.tensor(numbers) for numbers in (start, [2, 2], stride)]
        with pytest.raises(ConversionError, match="out of bounds"):
            evaluated(
                sliced((0, 0), (1, 1), (1, 1)), X, *given, shapes=[(-1, -1), (2,), (2,), (2,)]
            )


# What a place beyond the ends of 5, 6, 7 stands for. numpy's pad has the same modes.
_PADS = {"WRAP": "wrap", "CLAMP": "edge", "REFLECT": "reflect"}
_WALKS = [(-4, 7, 2), (9, 7, -3), (-5, 13, 1), (6, 1, 1)]


@pytest.mark.parametrize("mode", sorted(_PADS))
@pytest.mark.parametrize("walk", _WALKS)
def test_places_outside(evaluated: Evaluated, mode: str, walk: tuple[int, int, int]) -> None:
    """As numpy pads, and as TensorRT itself walks over sizes when it infers a shape."""
    start, size, stride = walk
    values = np.array([5, 6, 7])
    around = np.pad(values, 40, mode=_PADS[mode])  # type: ignore[call-overload]
    expected = around[40 + start + stride * np.arange(size)].tolist()
    build = sliced((start,), (size,), (stride,), mode)
    assert evaluated(build, torch.from_numpy(values)).tolist() == expected
    assert inferred(build, values) == expected[:8]


def inferred(build: Callable[..., Any], values: np.ndarray[Any, Any]) -> list[int]:
    """The result's first sizes as TensorRT's own shape inference says them: of up to 8 axes."""
    network = trt.Builder(logger_of(trt)).create_network()
    held = np.ascontiguousarray(values)
    sizes = build(network, network.add_constant(held.shape, held).get_output(0))
    count = min(sizes.shape[0], 8)
    sizes = network.add_slice(sizes, (0,), (count,), (1,)).get_output(0)
    shuffle = network.add_shuffle(network.add_input("x", trt.float32, (-1,)))
    shuffle.zero_is_placeholder = False
    shuffle.set_input(1, sizes)
    return list(shuffle.get_output(0).shape)


def test_reflecting_one_element_is_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="one element"):
        evaluated(sliced((-1,), (3,), (1,), "REFLECT"), torch.tensor([5.0]))


def test_fill(evaluated: Evaluated) -> None:
    expected = np.pad(X.numpy(), ((1, 2), (0, 1)), constant_values=-7)

    def build(net: Any, x: Any, value: Any) -> Any:
        layer = net.add_slice(x, (-1, 0), (7, 6), (1, 1))
        layer.mode = trt.SampleMode.FILL
        layer.set_input(4, value)
        return layer.get_output(0)

    assert np.array_equal(evaluated(build, X, torch.tensor(-7.0)).numpy(), expected)
    zeros = sliced((-1, 0), (7, 6), (1, 1), "FILL")
    expected = np.pad(X.numpy() + 1, ((1, 2), (0, 1)))
    assert np.array_equal(evaluated(zeros, X + 1).numpy(), expected)


def test_fill_of_nothing_and_of_other_dtypes(evaluated: Evaluated) -> None:
    build = sliced((0, -1), (2, 3), (1, 1), "FILL")
    assert evaluated(build, torch.ones(2, 0)).tolist() == [[0.0] * 3] * 2
    assert (
        evaluated(build, torch.ones(2, 1, dtype=torch.bool)).tolist() == [[False, True, False]] * 2
    )


def test_missing_fill_is_zero_where_tensorrt_infers_sizes() -> None:
    assert inferred(sliced((-1,), (5,), (1,), "FILL"), np.array([5, 6, 7])) == [0, 5, 6, 7, 0]


def test_slices_are_seen(seen: Callable[..., bool]) -> None:
    build, x = sliced((1, 0), (2, 4), (1, 1)), (torch.randn(4, 5),)
    for change in (
        {"start": (0, 0)},
        {"shape": (2, 3)},
        {"stride": (2, 1)},
        {"axes": (1, 0)},
        {"mode": "NEW"},
    ):
        assert seen(build, x, "SLICE", **change)
    assert seen(sliced((-1, 0), (3, 4), (1, 1), "CLAMP"), x, "SLICE", mode="REFLECT")


def padding(before: tuple[int, int], after: tuple[int, int]) -> Callable[..., Any]:
    return lambda net, x: net.add_padding_nd(x, before, after).get_output(0)


def test_padding(evaluated: Evaluated, seen: Callable[..., bool]) -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    found = evaluated(padding((1, 2), (0, 3)), x)
    assert np.array_equal(found.numpy(), np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 3))))
    assert torch.equal(evaluated(padding((-1, 0), (0, -2)), x), x[..., 1:, :2])
    assert seen(padding((1, 2), (0, 3)), (x,), "PADDING", pre_padding_nd=(0, 3))
    assert seen(padding((1, 2), (0, 3)), (x,), "PADDING", post_padding_nd=(1, 2))


def test_onnx_nodes(against_onnxruntime: Callable[..., None]) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    node = helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])
    for start, end, axis, step in (
        ([1, -3], [-1, 5], [0, 1], [1, 2]),
        ([-1], [-9], [1], [-2]),
        ([0], [2**62], [-2], [3]),
    ):
        numbers = zip("seat", (start, end, axis, step), strict=True)
        against_onnxruntime(node, {"x": x}, {name: np.array(value) for name, value in numbers})
    for mode in ("constant", "reflect", "edge", "wrap"):
        node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
        against_onnxruntime(node, {"x": x}, {"p": np.array([1, 2, 0, 3])})
