"""Gather and scatter: axes, batches, modes, and indices by operator set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)


def ints(values: Any) -> Any:
    return np.array(values, np.int32)


@pytest.mark.parametrize("opset", [5, 6, 8])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [2, [0, 2, 2], [[1], [0]]])
def test_gather(evaluated: Any, indices: Any, axis: int, opset: int) -> None:
    found = evaluated("gather", {"x": X, "indices": ints(indices)}, axis=axis, opset=opset)
    assert np.array_equal(found.numpy(), np.take(X, indices, axis))


@pytest.mark.parametrize(
    ("axis", "batch", "shape"), [(1, 1, (3, 2)), (2, 1, (3, 2)), (2, 2, (3, 4)), (-1, 2, (3, 4, 2))]
)
def test_gather_with_batch_dims(evaluated: Any, axis: int, batch: int, shape: Any) -> None:
    indices = RNG.integers(0, 4, shape).astype(np.int32)
    found = evaluated("gather", {"x": X, "indices": indices}, axis=axis, batch_dims=batch)
    lead = [np.take(X[at], indices[at], axis % 3 - batch) for at in np.ndindex(X.shape[:batch])]
    expected = np.stack(lead).reshape(X.shape[:batch] + lead[0].shape)
    assert np.array_equal(found.numpy(), expected)


def test_gather_takes_integers_of_other_widths(evaluated: Any) -> None:
    for dtype in (np.int16, np.uint16, np.int8, np.uint8):
        found = evaluated("gather", {"x": X, "indices": np.array([2, 0], dtype)}, axis=0, opset=7)
        assert np.array_equal(found.numpy(), X[[2, 0]])


def along(x: Any, indices: Any, axis: int) -> Any:
    return np.take_along_axis(x, indices.astype(np.int64), axis)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_along_axis(evaluated: Any, axis: int) -> None:
    shape = list(X.shape)
    shape[axis] = 7
    indices = RNG.integers(0, X.shape[axis], shape).astype(np.int32)
    found = evaluated("gather_along_axis", {"x": X, "indices": indices}, axis=axis)
    assert np.array_equal(found.numpy(), along(X, indices, axis))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gather_nd(evaluated: Any, depth: int) -> None:
    indices = RNG.integers(0, 3, (2, 6, depth)).astype(np.int32)
    found = evaluated("gather_nd", {"x": X, "indices": indices})
    assert np.array_equal(found.numpy(), X[tuple(np.moveaxis(indices, -1, 0))])


@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd_with_batch_dims(evaluated: Any, depth: int) -> None:
    indices = RNG.integers(0, 4, (3, 6, depth)).astype(np.int32)
    found = evaluated("gather_nd", {"x": X, "indices": indices}, batch_dims=1, opset=6)
    expected = np.stack([x[tuple(np.moveaxis(i, -1, 0))] for x, i in zip(X, indices, strict=True)])
    assert np.array_equal(found.numpy(), expected)


GATHERS = [
    ("gather", {"x": X, "indices": ints([-1, 0])}, X[[-1, 0]]),
    ("gather_along_axis", {"x": X[0], "indices": ints([[-1] * 5])}, X[0][[-1]]),
    ("gather_nd", {"x": X, "indices": ints([[-1, -4]])}, X[[-1], [-4]]),
]


@pytest.mark.parametrize(("kind", "inputs", "expected"), GATHERS)
def test_negative_indices_count_from_the_back_before_ios_17(
    evaluated: Any, kind: str, inputs: Any, expected: Any
) -> None:
    assert np.array_equal(evaluated(kind, inputs, opset=6).numpy(), expected)
    with pytest.raises(UnverifiableError, match=r"outside \[0"):
        evaluated(kind, inputs, opset=7)


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("kind", ["gather", "gather_along_axis", "gather_nd"])
def test_indices_beyond_the_axis_are_refused(evaluated: Any, kind: str, validate: bool) -> None:
    x = np.zeros(3, np.float32)
    indices = ints([[3]]) if kind == "gather_nd" else ints([3])
    with pytest.raises(UnverifiableError, match="error" if validate else "undefined"):
        evaluated(kind, {"x": x, "indices": indices}, validate_indices=validate)


def reference(data: Any, places: Any, updates: Any, mode: str) -> Any:
    """Each update in turn, in plain Python."""
    result = data.copy().reshape(-1)
    for place, update in zip(places.reshape(-1), updates.reshape(-1), strict=True):
        old = result[place]
        result[place] = {
            "update": update, "add": old + update, "sub": old - update, "mul": old * update,
            "div": old / update, "max": max(old, update), "min": min(old, update),
        }[mode]  # fmt: skip
    return result.reshape(data.shape)


MODES = ["update", "add", "sub", "mul", "div", "max", "min"]
NUMBERS = np.arange(60).reshape(3, 4, 5)


def updates_of(shape: Any) -> Any:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", [0, -2])
def test_scatter(evaluated: Any, mode: str, axis: int) -> None:
    indices = ints([2, 0] if mode == "update" else [2, 0, 2])
    places = np.take(NUMBERS, indices, axis)
    updates = updates_of(places.shape)
    inputs = {"data": X, "indices": indices, "updates": updates}
    found = evaluated("scatter", inputs, axis=axis, mode=mode)
    assert np.allclose(found.numpy(), reference(X, places, updates, mode), rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_along_axis(evaluated: Any, mode: str, axis: int) -> None:
    shape = list(X.shape)
    shape[axis] = 3
    indices = RNG.integers(0, X.shape[axis], shape).astype(np.int32)
    if mode == "update":  # no element twice
        indices = np.broadcast_to(ints([2, 0, 1]).reshape([-1] + [1] * (2 - axis % 3)), shape)
    places, updates = along(NUMBERS, indices, axis), updates_of(shape)
    inputs = {"data": X, "indices": indices, "updates": updates}
    found = evaluated("scatter_along_axis", inputs, axis=axis, mode=mode)
    assert np.allclose(found.numpy(), reference(X, places, updates, mode), rtol=1e-6, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(evaluated: Any, mode: str, depth: int) -> None:
    indices = ints([[0, 1, 2], [2, 3, 4], [1, 0, 0], [2, 3, 4]])[: 3 if mode == "update" else 4]
    indices = indices[:, :depth]
    places = NUMBERS[tuple(indices.T)]
    updates = updates_of(places.shape)
    inputs = {"data": X, "indices": indices, "updates": updates}
    found = evaluated("scatter_nd", inputs, mode=mode)
    assert np.allclose(found.numpy(), reference(X, places, updates, mode), rtol=1e-6, atol=0)


def scattered(direct: Any, data: Any, indices: Any, updates: Any, **given: Any) -> Any:
    inputs = {"data": data, "indices": indices, "updates": updates, "mode": "update"}
    opset = given.pop("opset", 8)
    tensors = {
        k: v if isinstance(v, str) else torch.as_tensor(v) for k, v in (inputs | given).items()
    }
    return direct("scatter", tensors, opset=opset)


def test_two_updates_of_one_element_must_agree(direct: Any) -> None:
    data = torch.zeros(3)
    assert scattered(direct, data, [1, 1], [5.0, 5.0]).tolist() == [0, 5, 0]
    nan = float("nan")
    assert scattered(direct, data, [1, 1], [nan, nan]).isnan().tolist() == [False, True, False]
    with pytest.raises(UnverifiableError, match="two different updates"):
        scattered(direct, data, [1, 1], [5.0, 6.0])
    assert data.tolist() == [0, 0, 0]


def test_scatter_refuses_what_is_not_documented(direct: Any) -> None:
    whole = torch.tensor([6, 7], dtype=torch.int32)
    three = torch.tensor([3], dtype=torch.int32)
    assert scattered(direct, whole, [0], three, mode="div").tolist() == [2, 7]
    for case in (
        {"indices": [1], "updates": three, "mode": "div"},
        {"indices": [1], "updates": 0 * three, "mode": "div"},
        {"indices": [1], "updates": three, "mode": "pow"},
        {"indices": [2], "updates": three},
        {"indices": [-1], "updates": three},
    ):
        with pytest.raises(UnverifiableError):
            scattered(direct, whole, **case)
    assert scattered(direct, whole, [-1], three, opset=6).tolist() == [6, 3]
    with pytest.raises(UnverifiableError, match="NaN"):
        scattered(direct, torch.zeros(1), [0], [float("nan")], mode="max")
    with pytest.raises(UnverifiableError, match="no mode"):
        direct("scatter", {"data": whole, "indices": torch.tensor([0]), "updates": three})


def test_an_axis_of_the_batch_cannot_be_gathered_along(direct: Any) -> None:
    inputs = {"x": torch.zeros(3, 2), "indices": torch.zeros(3).int()}
    with pytest.raises(InputFileError, match="axis 0 is one of the 1 batch_dims"):
        direct("gather", {**inputs, "batch_dims": torch.tensor(1)})


def test_negative_batch_dims_are_refused(direct: Any) -> None:
    inputs = {"x": torch.zeros(3, 2), "indices": torch.zeros(3).int()}
    with pytest.raises(UnverifiableError, match="batch_dims"):
        direct("gather", {**inputs, "axis": torch.tensor(1), "batch_dims": torch.tensor(-1)})


def test_float16_sums_are_kept_as_asked(direct: Any) -> None:
    inputs = {
        "data": torch.tensor([2048.0], dtype=torch.float16),
        "indices": torch.zeros(4, 1, dtype=torch.int32),
        "updates": torch.ones(4, dtype=torch.float16),
        "mode": "add",
    }
    assert direct("scatter_nd", inputs, accumulate=torch.float32).tolist() == [2052]
    assert direct("scatter_nd", inputs, accumulate=torch.float16).tolist() == [2048]


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("gather", {"x": torch.zeros(3), "indices": torch.tensor([0.0])}),
        ("gather", {"x": torch.zeros(3), "indices": torch.tensor([0]), "axis": torch.tensor(1)}),
        (
            "gather",
            {"x": torch.zeros(3, 2), "indices": torch.tensor([0]), "batch_dims": torch.tensor(1)},
        ),
        ("gather_along_axis", {"x": torch.zeros(3, 1), "indices": torch.zeros(1, 2).int()}),
        ("gather_nd", {"x": torch.zeros(3), "indices": torch.zeros(1, 2).int()}),
        (
            "scatter_nd",
            {"data": torch.zeros(3), "indices": torch.zeros(1, 1).int(), "updates": torch.zeros(2)},
        ),
        (
            "scatter",
            {
                "data": torch.zeros(3),
                "indices": torch.zeros(1).int(),
                "updates": torch.zeros(1).int(),
            },
        ),
    ],
)
def test_contradictions_are_damage(direct: Any, kind: str, inputs: Any) -> None:
    with pytest.raises(InputFileError):
        direct(kind, inputs)


@pytest.mark.parametrize(
    ("kind", "inputs", "constants"),
    [
        ("gather", {"x": X, "indices": ints([[1, 2], [0, 0]])}, {"axis": 1, "batch_dims": 0}),
        ("gather_along_axis", {"x": X, "indices": ints(np.ones((3, 2, 5)))}, {"axis": 1}),
        ("gather_nd", {"x": X, "indices": ints([[1, 2], [0, 0]])}, {}),
    ],
)
def test_coremltools_folds_to_the_same(
    evaluated: Any, inferred: Any, kind: str, inputs: Any, constants: Any
) -> None:
    second = inferred(kind, inputs, **constants)
    if second is None:
        pytest.skip("coremltools folds no such constant")
    assert np.array_equal(evaluated(kind, inputs, **constants).numpy(), second)
