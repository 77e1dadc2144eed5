"""Gathers, scatters, one-hot encodings, places of what is not zero, reversed sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]
X = torch.arange(24.0).reshape(2, 3, 4)


def gathered(mode: str = "DEFAULT", axis: int = 0, shared: int = 0) -> Callable[..., Any]:
    def build(net: Any, x: Any, indices: Any) -> Any:
        layer = net.add_gather_v2(x, indices, getattr(trt.GatherMode, mode))
        layer.axis, layer.num_elementwise_dims = axis, shared
        return layer.get_output(0)

    return build


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("indices", [1, [0, 1, 1], [[1, 0], [-1, 0]], []])
def test_gather(evaluated: Evaluated, axis: int, indices: Any) -> None:
    where = torch.tensor(indices, dtype=torch.int32)
    found = evaluated(gathered(axis=axis), X, where)
    assert np.array_equal(found.numpy(), np.take(X.numpy(), where.numpy(), axis))


def test_gather_along_a_batch(evaluated: Evaluated) -> None:
    """The first axis of both is walked together; a size of 1 stands for any."""
    where = torch.tensor([[[2, 0]], [[1, 1]]])
    expected = torch.stack([X[0][[2, 0]], X[1][[1, 1]]]).unsqueeze(1)
    assert torch.equal(evaluated(gathered(axis=1, shared=1), X, where), expected)
    found = evaluated(gathered(axis=2, shared=1), X, torch.tensor([[3, 0]]))
    assert torch.equal(found, X[..., [3, 0]])


@pytest.mark.parametrize("axis", range(3))
def test_gather_elements(evaluated: Evaluated, axis: int) -> None:
    rng = np.random.default_rng(axis)
    where = rng.integers(-X.shape[axis], X.shape[axis], (2, 3, 4))
    found = evaluated(gathered("ELEMENT", axis), X, torch.from_numpy(where))
    assert np.array_equal(found.numpy(), np.take_along_axis(X.numpy(), where, axis))


def test_gather_nd(evaluated: Evaluated) -> None:
    where = torch.tensor([[0, 2], [1, -1]])
    assert torch.equal(evaluated(gathered("ND"), X, where), X[[0, 1], [2, 2]])
    whole = torch.tensor([[[1, 0, 3]]])
    assert evaluated(gathered("ND"), X, whole).tolist() == [[15.0]]
    shared = torch.tensor([[[2]], [[0]]])
    found = evaluated(gathered("ND", shared=1), X, shared)
    assert torch.equal(found, torch.stack([X[0, 2], X[1, 0]]).unsqueeze(1))


@pytest.mark.parametrize(
    ("mode", "indices"), [("DEFAULT", [2]), ("ELEMENT", [[[-3]]]), ("ND", [[0, 3]])]
)
def test_places_outside_are_refused(evaluated: Evaluated, mode: str, indices: Any) -> None:
    with pytest.raises(UnverifiableError, match="indices from"):
        evaluated(gathered(mode), X, torch.tensor(indices))


def test_gathers_are_seen(seen: Callable[..., bool]) -> None:
    x = (torch.randn(2, 2, 2), torch.tensor([[0, 1], [1, 1]]))
    assert seen(gathered(), x, "GATHER", axis=1)
    assert seen(gathered(), x, "GATHER", mode="ND")
    assert seen(gathered(axis=1), x, "GATHER", num_elementwise_dims=1)
    assert seen(gathered(), x, "GATHER", mode="NEW")


def scattered(mode: str, axis: int = 0) -> Callable[..., Any]:
    def build(net: Any, *inputs: Any) -> Any:
        layer = net.add_scatter(*inputs, getattr(trt.ScatterMode, mode))
        layer.axis = axis
        return layer.get_output(0)

    return build


@pytest.mark.parametrize("axis", range(2))
def test_scatter_elements(evaluated: Evaluated, axis: int) -> None:
    x, updates = np.zeros((3, 3), np.float32), np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    where = np.array([[1, 0, 2], [0, 2, 1]])
    expected = x.copy()
    for (row, column), place in np.ndenumerate(where):
        expected[(place, column) if axis == 0 else (row, place)] = updates[row, column]
    found = evaluated(scattered("ELEMENT", axis), *map(torch.from_numpy, (x, where, updates)))
    assert np.array_equal(found.numpy(), expected)


def test_scatter_nd(evaluated: Evaluated) -> None:
    where, updates = torch.tensor([[1, 2], [0, 0]]), torch.tensor([[1.0] * 4, [float("nan")] * 4])
    expected = X.clone()
    expected[1, 2], expected[0, 0] = updates[0], updates[1]
    found = evaluated(scattered("ND"), X, where, updates)
    assert torch.equal(found.nan_to_num(-1), expected.nan_to_num(-1))
    assert torch.equal(X, torch.arange(24.0).reshape(2, 3, 4))


def test_two_updates_of_one_place(evaluated: Evaluated) -> None:
    """Which one stays is not said; equal ones do not differ."""
    x, where = torch.zeros(3), torch.tensor([1, 1])
    assert evaluated(scattered("ELEMENT"), x, where, torch.tensor([2.0, 2.0])).tolist() == [0, 2, 0]
    for mode, shape in (("ELEMENT", (2,)), ("ND", (2, 1))):
        with pytest.raises(UnverifiableError, match="two updates"):
            evaluated(scattered(mode), x, where.reshape(shape), torch.tensor([2.0, 3.0]))
    with pytest.raises(UnverifiableError, match="indices from -1"):
        evaluated(scattered("ELEMENT"), x, torch.tensor([-1]), torch.ones(1))


def test_scatters_are_seen(seen: Callable[..., bool]) -> None:
    inputs = (torch.zeros(2, 2), torch.tensor([[1, 0]]), torch.tensor([[5.0, 6.0]]))
    assert seen(scattered("ELEMENT"), inputs, "SCATTER", axis=1)
    assert seen(scattered("ELEMENT"), inputs, "SCATTER", mode="ND")
    assert seen(scattered("ELEMENT"), inputs, "SCATTER", mode="NEW")


def one_hot(axis: int) -> Callable[..., Any]:
    def build(net: Any, indices: Any, values: Any) -> Any:
        depth = net.add_constant((), np.array([4], np.int32)).get_output(0)
        return net.add_one_hot(indices, values, depth, axis).get_output(0)

    return build


def test_one_hot(evaluated: Evaluated, seen: Callable[..., bool]) -> None:
    indices, values = torch.tensor([[0, 3, 1], [2, 2, 0]]), torch.tensor([-1.0, 5.0])
    plain = torch.nn.functional.one_hot(indices, 4) * 6.0 - 1
    small = indices.to(torch.int32)
    for axis in (-1, 2, 0, 1):
        found = evaluated(one_hot(axis), small, values)
        assert torch.equal(found, plain.movedim(-1, axis))
    for wrong in (4, -1):
        with pytest.raises(UnverifiableError, match="of 4 elements"):
            evaluated(one_hot(0), torch.tensor([wrong], dtype=torch.int32), values)
    assert seen(one_hot(0), (small, values), "ONE_HOT", axis=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_non_zero(evaluated: Evaluated, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 2, 0], [1, 0, -3]]).to(dtype)
    found = evaluated(lambda net, x: net.add_non_zero(x).get_output(0), x)
    assert np.array_equal(found.numpy(), np.array(np.nonzero(x.numpy())))
    assert evaluated(lambda net, x: net.add_non_zero(x).get_output(0), x * 0).shape == (2, 0)


def reversed_sequence(batch: int, sequence: int) -> Callable[..., Any]:
    def build(net: Any, *inputs: Any) -> Any:
        layer = net.add_reverse_sequence(*inputs)
        layer.batch_axis, layer.sequence_axis = batch, sequence
        return layer.get_output(0)

    return build


def test_reverse_sequence(evaluated: Evaluated, seen: Callable[..., bool]) -> None:
    for batch, sequence in ((1, 0), (0, 1)):
        x = torch.arange(18.0).reshape(3, 3, 2)
        lengths = torch.tensor([0, 2, 3], dtype=torch.int32)
        expected = x.clone()
        for index, length in enumerate(lengths.tolist()):
            part = expected.select(batch, index)  # the sequence is its first axis
            part[:length] = part[:length].flip(0)
        assert torch.equal(evaluated(reversed_sequence(batch, sequence), x, lengths), expected)
    assert seen(reversed_sequence(1, 0), (x, lengths), "REVERSE_SEQUENCE", batch_axis=2)
    assert seen(reversed_sequence(1, 0), (x, lengths), "REVERSE_SEQUENCE", sequence_axis=2)
    with pytest.raises(UnverifiableError, match="indices from"):
        evaluated(reversed_sequence(1, 0), x, torch.tensor([0, 2, 4], dtype=torch.int32))


def test_onnx_nodes(against_onnxruntime: Callable[..., None]) -> None:
    x, where = X.numpy(), np.array([[1, 0], [0, -1]])
    for axis in (0, -1):
        against_onnxruntime(
            helper.make_node("Gather", ["x", "i"], ["y"], axis=axis), {"x": x, "i": where}
        )
    nd = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=1)
    against_onnxruntime(nd, {"x": x, "i": np.array([[2], [0]])})
    scatter = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)
    updates = np.array([[[9, 8]]], np.float32)
    against_onnxruntime(scatter, {"x": x, "i": np.array([[[2, 0]]]), "u": updates})
    hot = helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=1)
    values = {"d": np.array(3), "v": np.array([0, 1], np.float32)}
    against_onnxruntime(hot, {"i": np.array([[2, 0], [1, 1]])}, values)
