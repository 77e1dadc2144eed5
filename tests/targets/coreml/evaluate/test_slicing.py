"""Slices: NumPy's rule, the masks, and what is written through a slice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
ALL = slice(None)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


SLICES = [
    (((0, 1, 2), (2, 4, 5), None), np.s_[0:2, 1:4, 2:5]),
    (((0, 0, 0), (3, 4, 5), (2, 3, 2)), np.s_[0:3:2, 0:4:3, 0:5:2]),
    (((-2, -3, 0), (-1, 4, -2), None), np.s_[-2:-1, -3:4, 0:-2]),
    (((2, 3, 4), (0, 0, 1), (-1, -2, -1)), np.s_[2:0:-1, 3:0:-2, 4:1:-1]),
    (((-9, 0, 1), (99, 99, 2**31 - 1), None), np.s_[-9:99, 0:99, 1:99]),  # cut to the axis
]


@pytest.mark.parametrize("opset", [5, 8])
@pytest.mark.parametrize(("given", "numpy_slice"), SLICES)
def test_slice_by_index(evaluated: Any, given: Any, numpy_slice: Any, opset: int) -> None:
    begin, end, stride = given
    strides = {} if stride is None else {"stride": ints(*stride)}
    found = evaluated(
        "slice_by_index", {"x": X}, opset=opset, begin=ints(*begin), end=ints(*end), **strides
    )
    assert np.array_equal(found.numpy(), X[numpy_slice])


@pytest.mark.parametrize(
    ("masks", "numpy_slice"),
    [
        ({"begin_mask": [True, False, False]}, np.s_[0:3, 1:3, 1:3]),
        ({"end_mask": [False, True, True]}, np.s_[1:3, 1:, 1:]),
        ({"squeeze_mask": [True, False, False]}, np.s_[1, 1:3, 1:3]),
        ({"squeeze_mask": [True, True, True]}, np.s_[1, 1, 1]),
        ({"squeeze_mask": [False, False, True], "begin_mask": [True] * 3}, np.s_[:3, :3, 0]),
    ],
)
def test_masks(evaluated: Any, masks: dict[str, list[bool]], numpy_slice: Any) -> None:
    found = evaluated(
        "slice_by_index",
        {"x": X},
        begin=ints(1, 1, 1),
        end=ints(3, 3, 3),
        **{key: np.array(value) for key, value in masks.items()},
    )
    assert np.array_equal(found.numpy(), X[numpy_slice])
    assert found.shape == X[numpy_slice].shape


def test_begin_and_end_can_be_computed(evaluated: Any) -> None:
    inputs = {"x": X, "begin": ints(0, -2, 1), "end": ints(1, 4, 3)}
    found = evaluated("slice_by_index", inputs)
    assert np.array_equal(found.numpy(), X[0:1, -2:4, 1:3])


def slicing(begin: int, end: int, **more: Any) -> dict[str, torch.Tensor]:
    given = {"x": torch.arange(5.0), "begin": [begin], "end": [end], **more}
    return {key: torch.as_tensor(value) for key, value in given.items()}


@pytest.mark.parametrize(
    "inputs",
    [
        slicing(0, 0, stride=[-1], end_mask=[True]),
        slicing(0, 0, stride=[-1], begin_mask=[True]),
        slicing(5, 0, squeeze_mask=[True]),
        slicing(-6, 0, squeeze_mask=[True]),
    ],
)
def test_slices_of_no_documented_meaning_are_refused(direct: Any, inputs: Any) -> None:
    with pytest.raises(UnverifiableError, match="slice_by_index"):
        direct("slice_by_index", inputs)


@pytest.mark.parametrize(
    "inputs", [slicing(0, 1, stride=[0]), slicing(0, 1, stride=[1, 1]), slicing(0, 1, end_mask=[])]
)
def test_contradictory_slices_are_damage(direct: Any, inputs: Any) -> None:
    with pytest.raises(InputFileError):
        direct("slice_by_index", inputs)


def test_an_end_in_front_of_the_axis_lets_a_negative_stride_reach_0(direct: Any) -> None:
    # Made by hand: coremltools 9.0 writes 0 for -6 when it infers the type, and loses the 0th.
    assert direct("slice_by_index", slicing(4, -6, stride=[-2])).tolist() == [4, 2, 0]


def test_an_empty_slice_is_empty(direct: Any) -> None:
    assert direct("slice_by_index", slicing(4, 2)).shape == (0,)


@pytest.mark.parametrize(
    ("begin", "size", "numpy_slice"),
    [
        ((0, 0, 0), (3, 4, 5), np.s_[:]),
        ((1, 2, 3), (1, 2, 2), np.s_[1:2, 2:4, 3:5]),
        ((1, 2, 3), (-1, 1, -1), np.s_[1:, 2:3, 3:]),
    ],
)
def test_slice_by_size(evaluated: Any, begin: Any, size: Any, numpy_slice: Any) -> None:
    found = evaluated("slice_by_size", {"x": X, "begin": ints(*begin)}, size=ints(*size))
    assert np.array_equal(found.numpy(), X[numpy_slice])


@pytest.mark.parametrize(("begin", "size"), [(-1, 1), (3, 3), (6, -1), (0, -2)])
def test_slice_by_size_refuses_what_leaves_the_axis(direct: Any, begin: int, size: int) -> None:
    inputs = {"x": torch.arange(5.0), "begin": torch.tensor([begin]), "size": torch.tensor([size])}
    with pytest.raises(UnverifiableError):
        direct("slice_by_size", inputs)


@pytest.mark.parametrize(("given", "numpy_slice"), SLICES)
def test_slice_update(evaluated: Any, given: Any, numpy_slice: Any) -> None:
    begin, end, stride = given
    strides = {} if stride is None else {"stride": ints(*stride)}
    update = -np.arange(X[numpy_slice].size, dtype=np.float32).reshape(X[numpy_slice].shape) - 1
    found = evaluated(
        "slice_update", {"x": X, "update": update}, begin=ints(*begin), end=ints(*end), **strides
    )
    expected = X.copy()
    expected[numpy_slice] = update
    assert np.array_equal(found.numpy(), expected)


def test_slice_update_of_a_squeezed_axis(evaluated: Any) -> None:
    update = np.full((3, 5), -1, np.float32)
    found = evaluated(
        "slice_update",
        {"x": X, "update": update},
        begin=ints(0, 2, 0),
        end=ints(0, 0, 0),
        begin_mask=np.array([True, False, True]),
        end_mask=np.array([True, False, True]),
        squeeze_mask=np.array([False, True, False]),
    )
    expected = X.copy()
    expected[:, 2] = -1
    assert np.array_equal(found.numpy(), expected)


def test_slice_update_leaves_its_input_alone(direct: Any) -> None:
    inputs = {**slicing(0, 2), "update": torch.tensor([8.0, 9.0])}
    assert direct("slice_update", inputs).tolist() == [8, 9, 2, 3, 4]
    assert inputs["x"].tolist() == [0, 1, 2, 3, 4]


def test_updates_that_do_not_fit(direct: Any) -> None:
    with pytest.raises(InputFileError):
        direct("slice_update", {**slicing(0, 2), "update": torch.zeros(1)})
    with pytest.raises(InputFileError):
        direct("slice_update", {**slicing(0, 2), "update": torch.zeros(2, dtype=torch.int32)})
    with pytest.raises(UnverifiableError):
        squeezed = slicing(0, 2, squeeze_mask=[True])
        direct("slice_update", {**squeezed, "update": torch.zeros(())})


@pytest.mark.parametrize(("given", "numpy_slice"), SLICES)
def test_coremltools_folds_to_the_same(inferred: Any, given: Any, numpy_slice: Any) -> None:
    begin, end, stride = given
    strides = {} if stride is None else {"stride": ints(*stride)}
    second = inferred("slice_by_index", {"x": X}, begin=ints(*begin), end=ints(*end), **strides)
    assert np.array_equal(second, X[numpy_slice])
