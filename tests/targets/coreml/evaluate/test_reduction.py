"""Reductions and cumulative sums, against torch in float64 and coremltools' own values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
POSITIVE = np.abs(X) + 0.1


def _prod(x: Any, axes: list[int], keep: bool) -> Any:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS: dict[str, Any] = {
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keep),
    "reduce_mean": lambda x, axes, keep: x.mean(axes, keep),
    "reduce_max": lambda x, axes, keep: x.amax(axes, keep),
    "reduce_min": lambda x, axes, keep: x.amin(axes, keep),
    "reduce_prod": _prod,
    "reduce_l1_norm": lambda x, axes, keep: x.abs().sum(axes, keep),
    "reduce_l2_norm": lambda x, axes, keep: x.square().sum(axes, keep).sqrt(),
    "reduce_log_sum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "reduce_log_sum_exp": lambda x, axes, keep: x.exp().sum(axes, keep).log(),
    "reduce_sum_square": lambda x, axes, keep: x.square().sum(axes, keep),
}


def near(found: Any, want: Any, rtol: float = 1e-6) -> None:
    expected = torch.as_tensor(want).to(found.dtype)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2], [-1, 0], [2, 1, 0]])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_over_axes(evaluated: Any, kind: str, axes: list[int], keep: bool) -> None:
    x = POSITIVE if kind == "reduce_log_sum" else X

    found = evaluated(kind, {"x": x}, axes=np.int32(axes), keep_dims=keep)

    near(found, REDUCTIONS[kind](torch.from_numpy(x).double(), axes, keep))


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_no_axes_means_all(evaluated: Any, inferred: Any, kind: str) -> None:
    found = evaluated(kind, {"x": POSITIVE})

    near(found, REDUCTIONS[kind](torch.from_numpy(POSITIVE).double(), [0, 1, 2], False))
    near(found, inferred(kind, {"x": POSITIVE}))
    assert evaluated(kind, {"x": POSITIVE}, keep_dims=True).shape == (1, 1, 1)


@pytest.mark.parametrize("axes", [[0], [-1, 0]])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_coremltools_computes_the_same(
    evaluated: Any, inferred: Any, kind: str, axes: list[int]
) -> None:
    values = {"axes": np.int32(axes), "keep_dims": True}

    near(evaluated(kind, {"x": POSITIVE}, **values), inferred(kind, {"x": POSITIVE}, **values))


@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_float16_reductions_under_both_kinds_of_sums(
    evaluated: Any, kind: str, keep: bool, accumulate: torch.dtype
) -> None:
    x = (POSITIVE if "log" in kind else X).astype(np.float16)

    found = evaluated(kind, {"x": x}, axes=np.int32([0, -1]), keep_dims=keep, accumulate=accumulate)

    near(found, REDUCTIONS[kind](torch.from_numpy(x).double(), [0, 2], keep), rtol=3e-3)
    assert found.dtype == torch.float16


def test_a_float16_sum_may_overflow_on_the_way_only_in_float16(evaluated: Any) -> None:
    x = np.float16([60000] * 1024 + [-60000] * 1024)

    assert evaluated("reduce_sum", {"x": x}, axes=np.int32([0])).item() == 0
    narrow = evaluated("reduce_sum", {"x": x}, axes=np.int32([0]), accumulate=torch.float16)
    assert not math.isfinite(narrow.item())
    # A mean divides first.
    narrow = evaluated("reduce_mean", {"x": x}, axes=np.int32([0]), accumulate=torch.float16)
    assert narrow.item() == 0


def test_log_sum_exp_of_large_values_stays_finite(evaluated: Any) -> None:
    x = np.float32([1000, 1000])

    near(evaluated("reduce_log_sum_exp", {"x": x}), 1000 + math.log(2))
    half = np.float16([1000, 1000])
    assert evaluated("reduce_log_sum_exp", {"x": half}, accumulate=torch.float16).item() == 1000.5


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("reduce_sum", [[1, -2], [3, 4]], [-1, 7]),
        ("reduce_max", [[1, -2], [3, 4]], [1, 4]),
        ("reduce_min", [[1, -2], [3, 4]], [-2, 3]),
        ("reduce_prod", [[1, -2], [3, 4]], [-2, 12]),
        ("reduce_mean", [[1, -3], [2, 4]], [-1, 3]),
        ("reduce_l1_norm", [[1, -2], [3, 4]], [3, 7]),
        ("reduce_l2_norm", [[0, -2], [3, 4]], [2, 5]),
        ("reduce_sum_square", [[1, -2], [3, 4]], [5, 25]),
        ("reduce_log_sum", [[3, -2], [0, 1]], [0, 0]),
    ],
)
def test_integers_whose_result_is_whole(
    evaluated: Any, inferred: Any, kind: str, values: Any, expected: list[int]
) -> None:
    x, axes = np.array(values, np.int32), np.int32([1])

    found = evaluated(kind, {"x": x}, axes=axes)

    assert found.tolist() == expected
    assert found.dtype == torch.int32
    assert inferred(kind, {"x": x}, axes=axes).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("reduce_mean", [1, 2]),
        ("reduce_l2_norm", [1, 1]),
        ("reduce_log_sum", [1, 1]),
        ("reduce_log_sum_exp", [1, 1]),
        ("reduce_sum", [2**31 - 1, 1]),
        ("reduce_prod", [2**16, 2**16]),
        ("reduce_log_sum", [-1, 1]),
    ],
)
def test_integers_whose_result_is_a_fraction_or_too_large_are_refused(
    evaluated: Any, kind: str, values: list[int]
) -> None:
    with pytest.raises(UnverifiableError):
        evaluated(kind, {"x": np.array(values, np.int32)})


@pytest.mark.parametrize("kind", ["reduce_max", "reduce_min", "reduce_argmax", "reduce_argmin"])
def test_the_extreme_of_nan_or_of_nothing_is_refused(direct: Any, kind: str) -> None:
    out = TensorType("int32" if "arg" in kind else "fp32", None)

    with pytest.raises(UnverifiableError, match="NaN"):
        direct(kind, {"x": torch.tensor([1.0, math.nan])}, out)
    with pytest.raises(UnverifiableError, match="no element"):
        direct(kind, {"x": torch.ones(0)}, out)


def test_axes_that_name_none_are_refused(direct: Any) -> None:
    # value_inference reduces nothing; the documentation has no such case.
    with pytest.raises(UnverifiableError, match="no axis"):
        direct("reduce_sum", {"x": torch.ones(2), "axes": torch.ones(0, dtype=torch.int32)})


@pytest.mark.parametrize("axes", [[2], [-3], [0, 0], [1, -1]])
def test_axes_that_cannot_be_are_damage(direct: Any, axes: list[int]) -> None:
    with pytest.raises(InputFileError, match="axes"):
        direct("reduce_sum", {"x": torch.ones(2, 2), "axes": torch.tensor(axes)})


@pytest.mark.parametrize(
    ("kind", "axis", "keep", "opset"),
    list(itertools.product(["reduce_argmax", "reduce_argmin"], [0, 1, -1], [True, False], [5, 8])),
)
def test_where_the_extreme_lies(
    evaluated: Any, inferred: Any, kind: str, axis: int, keep: bool, opset: int
) -> None:
    function = torch.argmax if kind == "reduce_argmax" else torch.argmin

    found = evaluated(kind, {"x": X}, axis=axis, keep_dims=keep, opset=opset)

    assert found.dtype == torch.int32
    assert torch.equal(found.long(), function(torch.from_numpy(X), axis, keep))
    assert found.tolist() == inferred(kind, {"x": X}, axis=axis, keep_dims=keep).tolist()


def test_where_the_extreme_lies_by_default(evaluated: Any) -> None:
    assert evaluated("reduce_argmax", {"x": X}).shape == (2, 3)
    found = evaluated("reduce_argmax", {"x": X}, output_dtype="uint16")
    assert torch.equal(found.long(), torch.from_numpy(X).argmax(-1))
    with pytest.raises(UnverifiableError, match="uint16"):
        evaluated("reduce_argmax", {"x": np.zeros(65537, np.float32)}, output_dtype="uint16")


@pytest.mark.parametrize(
    ("kind", "x"), [("reduce_argmax", [1, 3, 3]), ("reduce_argmin", [1, 1, 3])]
)
def test_a_tie_is_refused(evaluated: Any, kind: str, x: list[int]) -> None:
    # "In case of ties, the identity of the return value is not guaranteed."
    with pytest.raises(UnverifiableError, match="tie"):
        evaluated(kind, {"x": np.float32(x)})


def test_a_tie_of_others_is_none(evaluated: Any) -> None:
    assert evaluated("reduce_argmax", {"x": np.float32([1, 1, 3])}).item() == 2


@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"),
    [
        (False, False, [1, 3, 6, 10]),
        (True, False, [0, 1, 3, 6]),
        (False, True, [10, 9, 7, 4]),
        (True, True, [9, 7, 4, 0]),
    ],
)
@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_cumulative_sums(
    evaluated: Any,
    inferred: Any,
    dtype: Any,
    accumulate: torch.dtype,
    exclusive: bool,
    reverse: bool,
    expected: list[int],
) -> None:
    x = np.array([[1, 2, 3, 4]], dtype)
    values = {"axis": 1, "exclusive": exclusive, "reverse": reverse}

    found = evaluated("cumsum", {"x": x}, accumulate=accumulate, **values)

    assert found.tolist() == [expected]
    assert found.dtype == torch.from_numpy(x).dtype
    # value_inference of an exclusive sum raises: it passes the data to np.zeros.
    if not exclusive:
        assert inferred("cumsum", {"x": x}, **values).tolist() == [expected]


def test_a_cumulative_sum_goes_down_by_default(evaluated: Any) -> None:
    assert evaluated("cumsum", {"x": np.float32([[1, 2], [3, 4]])}).tolist() == [[1, 2], [4, 6]]
    assert evaluated("cumsum", {"x": np.zeros((0, 2), np.float32)}, exclusive=True).shape == (0, 2)


def test_a_float16_cumulative_sum_rounds_every_step_or_every_result(evaluated: Any) -> None:
    x = np.float16([2048, 1, 1, 1])

    assert evaluated("cumsum", {"x": x}).tolist() == [2048, 2048, 2050, 2052]
    assert evaluated("cumsum", {"x": x}, accumulate=torch.float16).tolist() == [2048] * 4


def test_a_cumulative_sum_that_leaves_int32_is_refused(evaluated: Any) -> None:
    with pytest.raises(UnverifiableError, match="int32"):
        evaluated("cumsum", {"x": np.array([2**31 - 1, 1], np.int32)})


def test_defaults_that_the_file_leaves_out(direct: Any) -> None:
    # coremltools writes every default into the file; packages of other tools may not.
    x = torch.from_numpy(X)

    for kind, function in REDUCTIONS.items():
        given = x.abs() if kind == "reduce_log_sum" else x
        near(direct(kind, {"x": given}), function(given.double(), [0, 1, 2], False))
    for opset in (5, 8):
        found = direct("reduce_argmin", {"x": x}, TensorType("int32", None), opset=opset)
        assert torch.equal(found, x.argmin(-1).int())
    near(direct("cumsum", {"x": x}), x.cumsum(0))


def test_a_scalar_cannot_be_reduced(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="rank 0"):
        direct("reduce_sum", {"x": torch.ones(())})
