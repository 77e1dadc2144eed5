"""Constants, shapes, shuffles, concatenations, choices, ranges."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import ConversionError, UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]
X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int32, np.int8, np.bool_])
def test_a_constant_is_the_array_that_was_given(evaluated: Evaluated, dtype: Any) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    found = evaluated(
        lambda net, x: (net.add_constant((2, 3), values).get_output(0),), torch.zeros(1)
    )
    assert torch.equal(found, torch.from_numpy(values))


def test_shape(evaluated: Evaluated) -> None:
    for x, sizes in ((X, [2, 3, 4]), (torch.tensor(1.0), []), (torch.zeros(0, 5), [0, 5])):
        found = evaluated(lambda net, x: net.add_shape(x).get_output(0), x)
        assert found.dtype == torch.int64
        assert found.tolist() == sizes


# --- Shuffles -------------------------------------------------------------------------------------


def shuffle(
    first: tuple[int, ...] | None = None,
    sizes: tuple[int, ...] | None = None,
    second: tuple[int, ...] | None = None,
    zero_copies: bool = True,
) -> Callable[..., Any]:
    def build(net: Any, x: Any, given: Any = None) -> Any:
        layer = net.add_shuffle(x)
        layer.zero_is_placeholder = zero_copies
        if first is not None:
            layer.first_transpose = first
        if sizes is not None:
            layer.reshape_dims = sizes
        if second is not None:
            layer.second_transpose = second
        if given is not None:
            layer.set_input(1, given)
        return layer.get_output(0)

    return build


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_transposes(evaluated: Evaluated, order: tuple[int, ...]) -> None:
    expected = torch.from_numpy(np.transpose(X.numpy(), order).copy())
    assert torch.equal(evaluated(shuffle(first=order), X), expected)
    assert torch.equal(evaluated(shuffle(second=order), X), expected)


def test_transpose_reshape_transpose(evaluated: Evaluated) -> None:
    found = evaluated(shuffle((1, 2, 0), (6, 4), (1, 0)), X)
    expected = np.transpose(X.numpy(), (1, 2, 0)).reshape(6, 4).T
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    ("sizes", "result"),
    [((4, -1), (4, 6)), ((0, -1), (2, 12)), ((0, 0, 0), (2, 3, 4)), ((2, 0, 2, 2), (2, 3, 2, 2))],
)
def test_placeholders(
    evaluated: Evaluated, sizes: tuple[int, ...], result: tuple[int, ...]
) -> None:
    """By attribute, and by an input, with sizes that are not known while building."""
    expected = X.reshape(result)
    assert torch.equal(evaluated(shuffle(sizes=sizes), X), expected)
    given = torch.tensor(sizes)
    assert torch.equal(evaluated(shuffle(), X, given, shapes=[(-1, 3, 4), given.shape]), expected)


def test_a_zero_copies_from_the_transposed_input(evaluated: Evaluated) -> None:
    """What the shapes that TensorRT declares say; the evaluator holds its result against them."""
    found = evaluated(shuffle((1, 2, 0), (0, -1)), X)
    assert torch.equal(found, X.permute(1, 2, 0).reshape(3, 8))


def test_a_zero_that_is_no_placeholder_is_a_size(evaluated: Evaluated) -> None:
    found = evaluated(shuffle(sizes=(5, 0), zero_copies=False), torch.zeros(0, 2))
    assert found.shape == (5, 0)


def test_a_scalar_of_one_element_and_back(evaluated: Evaluated) -> None:
    assert evaluated(shuffle(sizes=()), torch.ones(1, 1)).shape == ()
    assert evaluated(shuffle(sizes=(1, 1)), torch.tensor(1.0)).shape == (1, 1)


def test_refused_and_impossible_sizes(evaluated: Evaluated) -> None:
    free = [(-1, -1), (2,)]
    with pytest.raises(UnverifiableError, match="what -1 is"):
        evaluated(shuffle(), torch.zeros(0, 2), torch.tensor([0, -1]), shapes=free)
    with pytest.raises(ConversionError):
        evaluated(shuffle(), torch.zeros(4, 2), torch.tensor([3, -1]), shapes=free)


def test_shuffles_are_seen(seen: Callable[..., bool]) -> None:
    build = shuffle((1, 2, 0), (6, 4), (1, 0))
    x = (torch.randn(2, 3, 4),)
    assert seen(build, x, "SHUFFLE", first_transpose=(0, 1, 2, 3, 4, 5, 6, 7))
    assert seen(build, x, "SHUFFLE", second_transpose=(0, 1, 2, 3, 4, 5, 6, 7))
    assert seen(build, x, "SHUFFLE", reshape_dims=(4, 6))
    assert seen(shuffle(sizes=(0, -1)), x, "SHUFFLE", zero_is_placeholder=False)


# --- Others ---------------------------------------------------------------------------------------


def with_axes(method: str, axes: list[int]) -> Callable[..., Any]:
    def build(net: Any, x: Any) -> Any:
        given = net.add_constant((len(axes),), np.array(axes, np.int64)).get_output(0)
        return getattr(net, method)(x, given).get_output(0)

    return build


def test_squeeze_and_unsqueeze(evaluated: Evaluated) -> None:
    x = torch.arange(6.0).reshape(1, 2, 1, 3)
    for axes, shape in (([0], (2, 1, 3)), ([-2, 0], (2, 3))):
        assert torch.equal(evaluated(with_axes("add_squeeze", axes), x), x.reshape(shape))
    y = torch.arange(6.0).reshape(2, 3)
    for axes, shape in (([0], (1, 2, 3)), ([-1, 0], (1, 2, 3, 1)), ([3, 1], (2, 1, 3, 1))):
        assert torch.equal(evaluated(with_axes("add_unsqueeze", axes), y), y.reshape(shape))


def concatenation(axis: int) -> Callable[..., Any]:
    def build(net: Any, *values: Any) -> Any:
        layer = net.add_concatenation(list(values))
        layer.axis = axis
        return layer.get_output(0)

    return build


def test_concatenation(evaluated: Evaluated, seen: Callable[..., bool]) -> None:
    for axis in range(3):
        y = X.narrow(axis, 0, 1)
        found = evaluated(concatenation(axis), X, y, X)
        assert np.array_equal(found.numpy(), np.concatenate([X, y, X], axis))
    assert evaluated(concatenation(0), torch.zeros(0, 2), torch.ones(3, 2)).shape == (3, 2)
    assert seen(concatenation(0), (X, X), "CONCATENATION", axis=1)
    assert seen(concatenation(0), (X, X), "CONCATENATION", axis=-3)


def test_select(evaluated: Evaluated) -> None:
    def build(net: Any, *inputs: Any) -> Any:
        return net.add_select(*inputs).get_output(0)

    condition = torch.tensor([[True], [False]])
    true, false = torch.tensor([[1.0, 2.0, 3.0]]), torch.full((2, 3), float("nan"))
    found = evaluated(build, condition, true, false)
    assert found[0].tolist() == [1.0, 2.0, 3.0]
    assert bool(found[1].isnan().all())


def fill(
    shape: tuple[int, ...], dtype: str, alpha: Any = None, beta: Any = None
) -> Callable[..., Any]:
    def build(net: Any, *inputs: Any) -> Any:
        layer = net.add_fill(shape, trt.FillOperation.LINSPACE, getattr(trt, dtype))
        if alpha is not None:
            layer.alpha, layer.beta = alpha, beta
        for index, value in enumerate(inputs):
            layer.set_input(index, value)
        return layer.get_output(0)

    return build


def test_ranges_by_attributes(evaluated: Evaluated) -> None:
    nothing = torch.zeros(1)

    def built(*given: Any) -> torch.Tensor:
        return evaluated(lambda net, x: fill(*given)(net), nothing)

    assert built((4,), "float32").tolist() == [0.0, 1.0, 2.0, 3.0]
    assert built((3,), "float32", 2.5, -0.5).tolist() == [2.5, 2.0, 1.5]
    assert built((3,), "int64", 2**40, 3).tolist() == [2**40, 2**40 + 3, 2**40 + 6]
    assert built((0,), "int32", 1, 1).shape == (0,)
    with pytest.raises(UnverifiableError, match="along 2 axes"):
        built((2, 2), "float32", 1.0, 1.0)


def test_ranges_by_inputs(evaluated: Evaluated) -> None:
    """TensorRT's operator page of Fill has this example, of which ours has three axes."""
    sizes = torch.tensor([2, 3, 2])
    alpha, beta = torch.tensor(1, dtype=torch.int32), torch.tensor([100, 10, 1], dtype=torch.int32)
    found = evaluated(fill((1, 1, 1), "int32"), sizes, alpha, beta)
    expected = [[[1, 2], [11, 12], [21, 22]], [[101, 102], [111, 112], [121, 122]]]
    assert found.tolist() == expected


def test_ranges_are_seen(seen: Callable[..., bool]) -> None:
    def build(net: Any, x: Any) -> Any:
        return fill((3,), "float32", 2.5, -0.5)(net)

    x = (torch.zeros(1),)
    for change in (
        {"alpha": 2.0},
        {"beta": 1.0},
        {"shape": (2,)},
        {"operation": "RANDOM_UNIFORM"},
        {"to_type": "int32"},
    ):
        assert seen(build, x, "FILL", **change)


def test_onnx_nodes(against_onnxruntime: Callable[..., None]) -> None:
    x = X.numpy()
    transpose = helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1])
    against_onnxruntime(transpose, {"x": x})
    reshape = helper.make_node("Reshape", ["x", "s"], ["y"])
    against_onnxruntime(reshape, {"x": x}, {"s": np.array([0, -1, 2])})
    expand = helper.make_node("Expand", ["x", "s"], ["y"])
    against_onnxruntime(expand, {"x": x[:, :1]}, {"s": np.array([2, 3, 4])})
    span = helper.make_node("Range", ["a", "b", "c"], ["y"])
    limits = {"a": np.float32(5), "b": np.float32(0), "c": np.float32(-1.5)}
    against_onnxruntime(span, {}, limits)
