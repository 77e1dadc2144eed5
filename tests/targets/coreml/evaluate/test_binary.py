"""Elementwise operators of two tensors, against torch and coremltools' own values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType

X = np.array([[-7.5, -3.0, -0.25], [0.5, 3.0, 7.5]], np.float32)
Y = np.array([[2.0, -1.5, 3.0]], np.float32)
I = np.array([[-7, -3, 0], [4, 3, 7]], np.int32)  # noqa: E741
J = np.array([[2, -3, 3]], np.int32)

ARITHMETIC = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "real_div": torch.true_divide,
    "floor_div": torch.floor_divide,
    "mod": torch.remainder,
}
COMPARISONS = {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
}
LOGICAL = {
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}


@pytest.mark.parametrize("opset", [5, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", ARITHMETIC)
def test_arithmetic_of_floats(evaluated: Any, kind: str, dtype: Any, opset: int) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)

    found = evaluated(kind, {"x": x, "y": y}, opset=opset)

    want = ARITHMETIC[kind](torch.from_numpy(x).double(), torch.from_numpy(y).double())
    torch.testing.assert_close(found, want.to(found.dtype), rtol=0, atol=0)
    assert found.dtype == torch.from_numpy(x).dtype


@pytest.mark.parametrize("kind", [k for k in ARITHMETIC if k != "real_div"])
def test_arithmetic_of_integers(evaluated: Any, inferred: Any, kind: str) -> None:
    found = evaluated(kind, {"x": I, "y": J})

    want = ARITHMETIC[kind](torch.from_numpy(I), torch.from_numpy(J))
    assert found.dtype == torch.int32
    assert torch.equal(found, want)
    assert found.tolist() == inferred(kind, {"x": I, "y": J}).tolist()


@pytest.mark.parametrize("kind", [*ARITHMETIC, "pow"])
def test_coremltools_computes_the_same(evaluated: Any, inferred: Any, kind: str) -> None:
    x = np.abs(X) if kind == "pow" else X

    found = evaluated(kind, {"x": x, "y": Y})

    second = torch.from_numpy(inferred(kind, {"x": x, "y": Y}))
    torch.testing.assert_close(found, second, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("x", "y", "quotient", "remainder"),
    [(7, 3, 2, 1), (-7, 3, -3, 2), (7, -3, -3, -2), (-7, -3, 2, -1), (6, -3, -2, 0), (0, -3, 0, 0)],
)
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16])
def test_division_rounds_down_and_the_remainder_has_the_sign_of_the_divisor(
    evaluated: Any, x: int, y: int, quotient: int, remainder: int, dtype: Any
) -> None:
    given = {"x": np.array([x], dtype), "y": np.array([y], dtype)}

    assert evaluated("floor_div", given).tolist() == [quotient]
    assert evaluated("mod", given).tolist() == [remainder]


def test_a_quotient_that_rounds_onto_an_integer_is_refused(evaluated: Any) -> None:
    # 1 / 0.1f is a little less than 10, and 10 in float32. value_inference says 9.
    with pytest.raises(UnverifiableError, match="rounding decides"):
        evaluated("floor_div", {"x": np.float32([1])}, y=np.float32(0.1))


def test_a_float_divided_by_zero_is_infinite(evaluated: Any) -> None:
    x = np.float32([1, -1, 0])

    for kind in ("real_div", "floor_div"):
        found = evaluated(kind, {"x": x}, y=np.float32(0)).tolist()
        assert found[:2] == [math.inf, -math.inf]
        assert math.isnan(found[2])


@pytest.mark.parametrize("kind", ["real_div", "floor_div", "mod"])
def test_an_integer_divided_by_zero_is_refused(evaluated: Any, kind: str) -> None:
    with pytest.raises(UnverifiableError, match="zero"):
        evaluated(kind, {"x": np.array([1], np.int32), "y": np.array([0], np.int32)})


@pytest.mark.parametrize(("x", "y"), [(1.0, 0.0), (math.inf, 2.0), (-1.0, math.inf)])
def test_a_remainder_that_is_not_documented_is_refused(evaluated: Any, x: float, y: float) -> None:
    with pytest.raises(UnverifiableError):
        evaluated("mod", {"x": np.float32([x]), "y": np.float32([y])})


def test_real_division_of_integers_is_known_where_they_divide(evaluated: Any) -> None:
    found = evaluated("real_div", {"x": np.int32([6, -8])}, y=np.int32(2))

    assert found.tolist() == [3, -4]
    assert found.dtype == torch.int32
    with pytest.raises(UnverifiableError, match="evenly"):
        evaluated("real_div", {"x": np.int32([7])}, y=np.int32(2))


@pytest.mark.parametrize(
    ("kind", "x", "y"),
    [
        ("add", 2**31 - 1, 1),
        ("sub", -(2**31), 1),
        ("mul", 2**16, 2**15),
        ("floor_div", -(2**31), -1),
        ("pow", 3, 20),
        ("pow", 2, -1),
    ],
)
def test_integers_that_leave_int32_are_refused(evaluated: Any, kind: str, x: int, y: int) -> None:
    with pytest.raises(UnverifiableError):
        evaluated(kind, {"x": np.array([x], np.int32), "y": np.array([y], np.int32)})


def test_powers(evaluated: Any) -> None:
    x, y = np.float32([2, -2, 0, 9, -8]), np.float32([-1, 3, 0, 0.5, 0.5])

    found = evaluated("pow", {"x": x, "y": y}).tolist()

    assert found[:4] == [0.5, -8, 1, 3]
    assert math.isnan(found[4])
    assert evaluated("pow", {"x": np.int32([-3, 0, 2]), "y": np.int32([3, 0, 30])}).tolist() == [
        -27,
        1,
        2**30,
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_comparisons(evaluated: Any, inferred: Any, kind: str, dtype: Any) -> None:
    x, y = np.array([[1], [2], [3]], dtype), np.array([1, 2, 3], dtype)

    found = evaluated(kind, {"x": x, "y": y})

    assert torch.equal(found, COMPARISONS[kind](torch.from_numpy(x), torch.from_numpy(y)))
    assert found.tolist() == inferred(kind, {"x": x, "y": y}).tolist()


def test_nan_is_unequal_to_everything(evaluated: Any) -> None:
    x = np.float32([np.nan])

    assert evaluated("equal", {"x": x, "y": x}).tolist() == [False]
    assert evaluated("not_equal", {"x": x, "y": x}).tolist() == [True]
    assert evaluated("greater_equal", {"x": x, "y": x}).tolist() == [False]


@pytest.mark.parametrize("kind", LOGICAL)
def test_logic(evaluated: Any, inferred: Any, kind: str) -> None:
    x, y = np.array([[True], [False]]), np.array([True, False])

    found = evaluated(kind, {"x": x, "y": y})

    assert torch.equal(found, LOGICAL[kind](torch.from_numpy(x), torch.from_numpy(y)))
    assert found.tolist() == inferred(kind, {"x": x, "y": y}).tolist()


@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_the_larger_of_nan_and_a_number_is_refused(evaluated: Any, kind: str) -> None:
    # "x > y ? x : y" depends on which of the two is NaN; value_inference gives NaN for either.
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(kind, {"x": np.float32([np.nan])}, y=np.float32(1))


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [((), (), ()), ((), (3,), (3,)), ((2, 1, 1), (1, 4), (2, 1, 4)), ((0, 3), (1,), (0, 3))],
)
def test_broadcasting(
    evaluated: Any, a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    given = {"x": np.ones(a, np.float32), "y": np.ones(b, np.float32)}

    assert evaluated("add", given).shape == shape


def test_shapes_that_do_not_broadcast_are_damage(direct: Any) -> None:
    with pytest.raises(InputFileError):
        direct("add", {"x": torch.ones(2), "y": torch.ones(3)})


def test_two_dtypes_are_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="different dtypes"):
        direct("add", {"x": torch.ones(1), "y": torch.ones(1).half()})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.bool_])
def test_select_takes_a_where_the_condition_holds(
    evaluated: Any, inferred: Any, dtype: Any
) -> None:
    a = np.array([[1, 0, 1], [1, 1, 1]], dtype)
    given = {"cond": np.array([[True], [False]]), "a": a, "b": np.array(0, dtype)}

    found = evaluated("select", given)

    assert found.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert found.tolist() == inferred("select", given).tolist()
    assert found.dtype == torch.from_numpy(a).dtype


def test_select_broadcasts_its_condition_too(direct: Any) -> None:
    # "based on broadcast rules from cond, a, b"; coremltools' type inference forgets cond.
    cond = torch.tensor([[True], [False]])

    found = direct("select", {"a": torch.ones(3), "b": torch.zeros(()), "cond": cond})

    assert found.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_select_does_not_let_the_other_side_in(evaluated: Any) -> None:
    a, b = np.float32([1, np.nan]), np.float32([np.inf, 2])

    assert evaluated("select", {"cond": np.array([True, False]), "a": a, "b": b}).tolist() == [1, 2]


def test_select_of_indices_is_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="order"):
        direct("select", {"cond": torch.tensor([True])}, TensorType("int32", (1, 1)))
