"""Shapes: what each operator on shapes makes of its arguments, and which it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def same(found: Any, expected: Any) -> bool:
    """Equal in dtype, shape and every bit, for tensors and tuples of them."""
    if isinstance(expected, tuple | list):
        return len(found) == len(expected) and all(map(same, found, expected))
    wanted = torch.as_tensor(expected)
    return found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "opset", "expected"),
    [
        ([4, 6], 8, (4, 6)),
        ([-1], 8, (24,)),
        ([2, -1, 2], 5, (2, 6, 2)),
        ([0, 0, 4], 5, (2, 3, 4)),  # as many sizes as x has: 0 inherits
        ([0, -1, 1], 6, (2, 12, 1)),
        ([1, 2, 0, 0], 7, (1, 2, 3, 4)),  # counted from the right
        ([0, 2, 0, 4], 8, (1, 2, 3, 4)),  # no counterpart: 1
        ([-1, 0], 8, (6, 4)),
    ],
)
def test_reshape(evaluated: Any, shape: list[int], opset: int, expected: tuple[int, ...]) -> None:
    found = evaluated("reshape", {"x": X}, opset=opset, shape=np.array(shape, np.int32))
    assert same(found, X.reshape(expected))


def test_the_documented_example_of_zeros_in_a_shape_from_ios_17(evaluated: Any) -> None:
    x = np.arange(100, dtype=np.float32).reshape(2, 50)
    found = evaluated("reshape", {"x": x}, opset=7, shape=np.array([1, 0, -1, 0], np.int32))
    assert same(found, x.reshape(1, 1, 2, 50))


def test_reshape_takes_a_shape_that_is_computed(evaluated: Any) -> None:
    found = evaluated("reshape", {"x": X, "shape": np.array([6, -1], np.int32)})
    assert same(found, X.reshape(6, 4))


@pytest.mark.parametrize(
    ("x", "shape", "opset"),
    [((2, 3), [0, 6, 1], 5), ((0, 4), [0, -1], 8)],
)
def test_reshape_refuses_a_shape_of_no_documented_meaning(
    direct: Any, x: tuple[int, ...], shape: list[int], opset: int
) -> None:
    inputs = {"x": torch.zeros(x), "shape": torch.tensor(shape, dtype=torch.int32)}
    with pytest.raises(UnverifiableError, match="reshape"):
        direct("reshape", inputs, opset=opset)


@pytest.mark.parametrize("shape", [[5, 5], [-1, -1], [-2, 12], [-1, 7], [2**31 - 1] * 3])
def test_a_reshape_that_does_not_fit_is_damage(direct: Any, shape: list[int]) -> None:
    inputs = {"x": torch.zeros(24), "shape": torch.tensor(shape, dtype=torch.int32)}
    with pytest.raises(InputFileError):
        direct("reshape", inputs)


def test_reshape_of_nothing_keeps_it(direct: Any) -> None:
    inputs = {"x": torch.zeros(0, 4), "shape": torch.tensor([-1, 2], dtype=torch.int32)}
    assert direct("reshape", inputs).shape == (0, 2)


@pytest.mark.parametrize(
    ("x", "begins", "ends", "masks", "expected"),
    [
        ((5, 6, 6), (0, 1), (2, 0), (False, True), (2, 3, 5, 6)),  # the documented example
        ((30, 6), (0, 2), (-1, 3), (False, False), (2, 3, 6)),
    ],
)
def test_reshape_like(
    evaluated: Any,
    x: tuple[int, ...],
    begins: tuple[int, ...],
    ends: tuple[int, ...],
    masks: tuple[bool, ...],
    expected: tuple[int, ...],
) -> None:
    value = np.arange(np.prod(expected), dtype=np.float32)
    inputs = {
        "x": value.reshape((-1, *x[1:])),
        "ref_tensors": (np.zeros((2, 3, 4), np.float32), np.zeros((1, 5, 6), np.float32)),
    }
    found = evaluated("reshape_like", inputs, begins=begins, ends=ends, end_masks=masks)
    assert same(found, value.reshape(expected))


@pytest.mark.parametrize("axes", [[0], [-1], [3], [0, 1], [1, 3], [-1, -2], [-4]])
def test_expand_dims(evaluated: Any, axes: list[int]) -> None:
    found = evaluated("expand_dims", {"x": X}, axes=np.array(axes, np.int32))
    assert same(found, np.expand_dims(X, tuple(axes)))


def test_expand_dims_refuses_axes_that_can_be_counted_in_two_ways(direct: Any) -> None:
    inputs = {"x": torch.zeros(2, 3), "axes": torch.tensor([2, 0], dtype=torch.int32)}
    with pytest.raises(UnverifiableError, match="one after the other"):
        direct("expand_dims", inputs)


def test_an_axis_named_twice_is_damage(direct: Any) -> None:
    inputs = {"x": torch.zeros(2, 3), "axes": torch.tensor([0, -4], dtype=torch.int32)}
    with pytest.raises(InputFileError, match="twice"):
        direct("expand_dims", inputs)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [([0], (2, 1, 3)), ([-2], (1, 2, 3)), ([0, 2], (2, 3)), ([1], (1, 2, 1, 3)), (None, (2, 3))],
)
def test_squeeze(evaluated: Any, axes: list[int] | None, expected: tuple[int, ...]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    given = {} if axes is None else {"axes": np.array(axes, np.int32)}
    assert same(evaluated("squeeze", {"x": x}, **given), x.reshape(expected))


def test_squeeze_of_a_scalar_is_damage(direct: Any) -> None:
    with pytest.raises(InputFileError, match="no axis"):
        direct("squeeze", {"x": torch.zeros(())})


@pytest.mark.parametrize("perm", [[2, 0, 1], [-1, 0, 1], [0, 1, 2], [1, -1, -3]])
def test_transpose(evaluated: Any, perm: list[int]) -> None:
    found = evaluated("transpose", {"x": X}, perm=np.array(perm, np.int32))
    assert same(found, X.transpose([axis % 3 for axis in perm]).copy())


@pytest.mark.parametrize("perm", [[0, 0, 1], [0, 1], [0, 1, 3], [2, 1, -1]])
def test_a_perm_that_is_none_is_damage(direct: Any, perm: list[int]) -> None:
    inputs = {"x": torch.zeros(2, 3, 4), "perm": torch.tensor(perm, dtype=torch.int32)}
    with pytest.raises(InputFileError):
        direct("transpose", inputs)


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_concat(evaluated: Any, axis: int) -> None:
    parts = (X, X + 100, X - 100)
    assert same(evaluated("concat", {"values": parts}, axis=axis), np.concatenate(parts, axis))


def test_concat_of_uneven_and_empty_parts(evaluated: Any) -> None:
    parts = (X, X[:, :1] + 5, X[:, :0])
    assert same(evaluated("concat", {"values": parts}, axis=1), np.concatenate(parts, 1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_interleaves(evaluated: Any, axis: int) -> None:
    a, b = X, X + 100
    found = evaluated("concat", {"values": (a, b)}, axis=axis, interleave=True)
    expected = np.empty([n * (2 if i == axis % 3 else 1) for i, n in enumerate(X.shape)], X.dtype)
    np.moveaxis(expected, axis, 0)[0::2] = np.moveaxis(a, axis, 0)
    np.moveaxis(expected, axis, 0)[1::2] = np.moveaxis(b, axis, 0)
    assert same(found, expected)


@pytest.mark.parametrize(
    "values",
    [
        (torch.zeros(0), torch.zeros(2, 3)),  # torch.cat would take it
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float16)),
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        (torch.zeros(()), torch.zeros(1)),
    ],
)
def test_parts_that_do_not_fit_together_are_damage(direct: Any, values: Any) -> None:
    with pytest.raises(InputFileError):
        direct("concat", {"values": values, "axis": torch.tensor(0)})


def test_scalars_are_put_together_as_elements(direct: Any) -> None:
    values = (torch.tensor(3.0), torch.tensor(5.0))
    assert direct("concat", {"values": values, "axis": torch.tensor(0)}).tolist() == [3, 5]


def test_interleaved_parts_must_be_of_one_shape(direct: Any) -> None:
    values = (torch.zeros(2, 3), torch.zeros(1, 3))
    given = {"values": values, "axis": torch.tensor(0), "interleave": torch.tensor(True)}
    with pytest.raises(InputFileError, match="differ in shape"):
        direct("concat", given)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2])
def test_stack(evaluated: Any, axis: int) -> None:
    parts = (X, X + 100)
    assert same(evaluated("stack", {"values": parts}, axis=axis), np.stack(parts, axis))


def test_stack_refuses_a_negative_axis_where_no_shape_tells_what_it_counts(direct: Any) -> None:
    values = (torch.zeros(2, 2), torch.ones(2, 2))
    with pytest.raises(UnverifiableError, match="axis -1"):
        direct("stack", {"values": values, "axis": torch.tensor(-1)}, TensorType("fp32", (2, 2, 2)))
    found = direct("stack", {"values": values, "axis": torch.tensor(-3)})
    assert same(found, torch.stack(values, 0))


@pytest.mark.parametrize(
    ("given", "axis", "sizes"),
    [
        ({"num_splits": 3}, 1, [1, 1, 1]),
        ({"num_splits": 2}, -1, [2, 2]),
        ({"split_sizes": np.array([1, 3], np.int32)}, 2, [1, 3]),
        ({"num_splits": 2, "split_sizes": np.array([2, 1], np.int32)}, -2, [2, 1]),
    ],
)
def test_split(evaluated: Any, given: dict[str, Any], axis: int, sizes: list[int]) -> None:
    found = evaluated("split", {"x": X}, axis=axis, **given)
    assert same(found, torch.split(torch.from_numpy(X), sizes, axis))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_splits": 2}, "divisible"),
        ({"num_splits": 0}, "divisible"),
        ({}, "missing"),
        ({"split_sizes": [4]}, "add up"),
        ({"split_sizes": [-1, 4]}, "add up"),
        ({"num_splits": 3, "split_sizes": [2, 1]}, "num_splits is 3"),
        ({"split_sizes": [2, 1]}, "splits into 2"),
    ],
)
def test_a_split_that_does_not_come_out_is_damage(
    direct: Any, given: dict[str, Any], said: str
) -> None:
    inputs = {key: torch.tensor(value) for key, value in given.items()}
    with pytest.raises(InputFileError, match=said):
        direct("split", {"x": torch.zeros(3), "axis": torch.tensor(0), **inputs})


@pytest.mark.parametrize("reps", [[1, 1, 1], [2, 1, 3], [1, 4, 1]])
def test_tile(evaluated: Any, reps: list[int]) -> None:
    assert same(evaluated("tile", {"x": X}, reps=np.array(reps, np.int32)), np.tile(X, reps))


@pytest.mark.parametrize(
    ("reps", "error"),
    [
        ([0, 1], UnverifiableError),
        ([-1, 1], InputFileError),
        ([2], InputFileError),
        ([2**20, 2**20], UnverifiableError),
    ],
)
def test_tile_refuses(direct: Any, reps: list[int], error: type[Exception]) -> None:
    with pytest.raises(error):
        direct("tile", {"x": torch.zeros(2, 3), "reps": torch.tensor(reps)})


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [  # the documented examples
        ((3,), -1, (1, 3)),
        ((3,), 1, (3, 1)),
        ((4, 3), -1, (4, 3)),
        ((2, 3, 2), -1, (6, 2)),
        ((5, 5, 2), 1, (5, 10)),
    ],
)
def test_flatten2d(
    evaluated: Any, shape: tuple[int, ...], axis: int, expected: tuple[int, ...]
) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert same(evaluated("flatten2d", {"x": x}, axis=axis), x.reshape(expected))


def test_shape(evaluated: Any) -> None:
    assert same(evaluated("shape", {"x": X}), torch.tensor([2, 3, 4], dtype=torch.int32))


@pytest.mark.parametrize(
    "value", [np.float32(2.5), np.float16(-1), np.int32(7), np.bool_(True), None]
)
def test_fill(evaluated: Any, value: Any) -> None:
    given = {} if value is None else {"value": value}
    found = evaluated("fill", {"shape": np.array([2, 3], np.int32)}, **given)
    assert same(found, np.full((2, 3), np.float32(0) if value is None else value))
    liked = evaluated("fill_like", {"ref_tensor": np.zeros((2, 3), np.int32)}, **given)
    assert same(liked, found)


@pytest.mark.parametrize(
    ("shape", "error"),
    [([0, 3], UnverifiableError), ([-1], InputFileError), ([2**30, 2**30], UnverifiableError)],
)
def test_fill_refuses(direct: Any, shape: list[int], error: type[Exception]) -> None:
    inputs = {"shape": torch.tensor(shape, dtype=torch.int32), "value": torch.tensor(0.0)}
    with pytest.raises(error):
        direct("fill", inputs, TensorType("fp32", None))


@pytest.mark.parametrize(
    ("start", "end", "step", "dtype"),
    [
        (0, 5, 1, np.int32),
        (5, 0, -2, np.int32),
        (3, 3, 1, np.int32),
        (4, 0, 1, np.int32),
        (0.0, 1.0, 0.25, np.float32),
        (1.0, -1.0, -0.5, np.float16),
        (-3, 8, 3, np.float32),
    ],
)
def test_range_1d(evaluated: Any, start: float, end: float, step: float, dtype: Any) -> None:
    given = {"start": dtype(start), "end": dtype(end), "step": dtype(step)}
    found = evaluated("range_1d", {k: np.array(v) for k, v in given.items()})
    assert same(found, np.arange(start, end, step, dtype=dtype))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ((0.0, 0.3, 0.1), UnverifiableError),
        ((0.0, 1.0, 0.0), InputFileError),
        ((0.0, float("nan"), 1.0), InputFileError),
        ((0.0, 1e30, 1e-06), UnverifiableError),
    ],
)
def test_range_1d_refuses(direct: Any, values: tuple[float, ...], error: type[Exception]) -> None:
    inputs = dict(zip(("start", "end", "step"), map(torch.tensor, values), strict=True))
    with pytest.raises(error):
        direct("range_1d", inputs)


@pytest.mark.parametrize("axes", [None, [0], [-1, 0], [1]])
def test_reverse(evaluated: Any, axes: list[int] | None) -> None:
    given = {} if axes is None else {"axes": np.array(axes, np.int32)}
    expected = np.flip(X, None if axes is None else tuple(axes)).copy()
    assert same(evaluated("reverse", {"x": X}, **given), expected)


@pytest.mark.parametrize(("along", "batch"), [(1, 0), (0, 1), (2, 0), (-1, 1), (0, -1)])
def test_reverse_sequence(evaluated: Any, along: int, batch: int) -> None:
    lengths = np.resize([2, 0, 1], X.shape[batch]).astype(np.int32)
    found = evaluated(
        "reverse_sequence", {"x": X, "lengths": lengths}, seq_axis=along, batch_axis=batch
    )
    expected = X.copy()
    for place in np.ndindex(X.shape):
        length, source = lengths[place[batch]], list(place)
        if place[along] < length:
            source[along] = length - 1 - place[along]
        expected[place] = X[tuple(source)]
    assert same(found, expected)


def test_reverse_sequence_refuses_lengths_and_axes_without_meaning(direct: Any) -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(InputFileError):
        direct(
            "reverse_sequence",
            {"x": x, "lengths": torch.tensor([4, 0]), "seq_axis": torch.tensor(1)},
        )
    with pytest.raises(UnverifiableError):
        direct("reverse_sequence", {"x": x, "lengths": torch.tensor([1, 1])})


@pytest.mark.parametrize(
    ("lower", "upper", "numpy_of"),
    [
        (0, -1, np.triu),
        (-1, 0, np.tril),
        (0, 0, lambda x: np.triu(np.tril(x))),
        (1, 2, lambda x: np.triu(np.tril(x, 2), -1)),
        (-1, -1, lambda x: x),
    ],
)
def test_band_part(evaluated: Any, lower: int, upper: int, numpy_of: Callable[..., Any]) -> None:
    x = X + 1
    found = evaluated("band_part", {"x": x}, lower=lower, upper=upper)
    assert same(found, np.stack([numpy_of(one) for one in x]))


def test_band_part_sets_what_is_outside_to_zero_whatever_it_was(evaluated: Any) -> None:
    x = np.full((2, 2), np.nan, np.float32)
    assert evaluated("band_part", {"x": x}, lower=0, upper=0)[0, 1] == 0


@pytest.mark.parametrize(
    ("kind", "inputs", "constants"),
    [
        ("reshape", {"x": X}, {"shape": np.array([0, -1, 2], np.int32)}),
        ("squeeze", {"x": X[:1]}, {"axes": np.array([0], np.int32)}),
        ("expand_dims", {"x": X}, {"axes": np.array([0, 2], np.int32)}),
        ("transpose", {"x": X}, {"perm": np.array([-1, 0, 1], np.int32)}),
        ("concat", {"values": (X, X)}, {"axis": -1}),
        ("stack", {"values": (X, X)}, {"axis": -1}),
        ("split", {"x": X}, {"num_splits": 2, "axis": -1}),
        ("tile", {"x": X}, {"reps": np.array([1, 2, 1], np.int32)}),
        ("flatten2d", {"x": X}, {"axis": -2}),
        ("fill", {"shape": np.array([2, 2], np.int32)}, {"value": np.float16(3)}),
        ("range_1d", {"start": np.int32(7), "end": np.int32(-2), "step": np.int32(-3)}, {}),
        ("reverse", {"x": X}, {"axes": np.array([-2], np.int32)}),
        ("band_part", {"x": X}, {"lower": 1, "upper": 0}),
    ],
)
def test_coremltools_folds_to_the_same(
    evaluated: Any, inferred: Any, kind: str, inputs: dict[str, Any], constants: dict[str, Any]
) -> None:
    second = inferred(kind, inputs, **constants)
    if second is None:
        pytest.skip("coremltools folds no such constant")
    found = evaluated(kind, inputs, **constants)
    for one, other in zip(
        found if isinstance(found, tuple) else (found,),
        second if isinstance(second, tuple) else (second,),
        strict=True,
    ):
        assert np.array_equal(one.numpy(), other)
