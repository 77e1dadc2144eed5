"""Elementwise operators of one tensor, against torch in float64 and coremltools' own values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType
from numpy.typing import NDArray

WIDE = np.array([-2.6, -1.0, -0.3, -0.0, 0.0, 0.2, 0.9, 1.0, 2.4, 7.5], np.float32)
UNIT = np.array([-1.0, -0.7, -0.2, 0.0, 0.3, 0.9, 1.0], np.float32)
OPEN = np.array([-0.99, -0.4, 0.0, 0.3, 0.99], np.float32)
POSITIVE = np.array([1e-3, 0.1, 0.5, 1.0, 2.0, 300.0], np.float32)

PLAIN = {
    "abs": (torch.abs, WIDE),
    "acos": (torch.acos, UNIT),
    "asin": (torch.asin, UNIT),
    "atan": (torch.atan, WIDE),
    "atanh": (torch.atanh, OPEN),
    "ceil": (torch.ceil, WIDE),
    "cos": (torch.cos, WIDE),
    "cosh": (torch.cosh, WIDE),
    "erf": (torch.erf, WIDE),
    "exp": (torch.exp, WIDE),
    "exp2": (torch.exp2, WIDE),
    "floor": (torch.floor, WIDE),
    "identity": (lambda x: x, WIDE),
    "sign": (torch.sign, WIDE),
    "sin": (torch.sin, WIDE),
    "sinh": (torch.sinh, WIDE),
    "sqrt": (torch.sqrt, POSITIVE),
    "square": (torch.square, WIDE),
    "tan": (torch.tan, WIDE),
    "tanh": (torch.tanh, WIDE),
    # y = f(x + epsilon) with the default epsilon of the documentation.
    "inverse": (lambda x: 1 / (x + 1e-4), POSITIVE),
    "log": (lambda x: torch.log(x + 1e-45), POSITIVE),
    "rsqrt": (lambda x: (x + 1e-12).rsqrt(), POSITIVE),
}
DTYPES = (np.float32, np.float16)


def near(found: Any, want: torch.Tensor | NDArray[Any], dtype: Any = np.float32) -> None:
    """Equal but for two units in the last place; dtype and shape are those that are wanted."""
    expected = torch.from_numpy(np.asarray(want, dtype=dtype))
    rtol = 2**-9 if dtype == np.float16 else 4e-7
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", PLAIN)
def test_an_operator_is_its_function(evaluated: Any, kind: str, dtype: Any) -> None:
    function, values = PLAIN[kind]
    x = values.astype(dtype)

    found = evaluated(kind, {"x": x}, opset=6)

    near(found, function(torch.from_numpy(x).double()), dtype)


@pytest.mark.parametrize("kind", PLAIN)
def test_coremltools_computes_the_same(evaluated: Any, inferred: Any, kind: str) -> None:
    _, values = PLAIN[kind]

    near(evaluated(kind, {"x": values}), inferred(kind, {"x": values}))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 2, 3, 4, 5)])
def test_shapes_stay(evaluated: Any, shape: tuple[int, ...]) -> None:
    assert evaluated("cos", {"x": np.zeros(shape, np.float32)}).shape == shape


@pytest.mark.parametrize(
    ("kind", "function", "epsilon"),
    [
        ("inverse", lambda x: 1 / (x + 0.25), 0.25),
        ("log", lambda x: torch.log(x + 0.25), 0.25),
        ("rsqrt", lambda x: (x + 0.25).rsqrt(), 0.25),
        ("inverse", lambda x: 1 / x, 0.0),
    ],
)
def test_an_epsilon_is_added_first(
    evaluated: Any, inferred: Any, kind: str, function: Callable[..., Any], epsilon: float
) -> None:
    found = evaluated(kind, {"x": POSITIVE}, epsilon=np.float32(epsilon))

    near(found, function(torch.from_numpy(POSITIVE).double()))
    near(found, inferred(kind, {"x": POSITIVE}, epsilon=np.float32(epsilon)))


def test_a_logarithm_of_zero_with_a_subnormal_epsilon_is_refused(evaluated: Any) -> None:
    with pytest.raises(UnverifiableError, match="subnormal"):
        evaluated("log", {"x": np.zeros(2, np.float32)})


def test_in_float16_the_default_epsilon_of_a_logarithm_is_zero(evaluated: Any) -> None:
    found = evaluated("log", {"x": np.zeros(1, np.float16)}, opset=6)

    assert found.tolist() == [-math.inf]


def test_an_epsilon_that_float16_loses_is_refused_where_it_matters(evaluated: Any) -> None:
    epsilon = np.float32(1e-8)

    near(evaluated("rsqrt", {"x": np.float16([4])}, epsilon=epsilon), [0.5], np.float16)
    with pytest.raises(UnverifiableError, match="float16 does not hold"):
        evaluated("rsqrt", {"x": np.float16([0])}, epsilon=epsilon)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clip_bounds_and_keeps_nan(evaluated: Any, dtype: Any) -> None:
    x = np.array([-2, -0.5, 0.1, 3, np.nan], dtype)

    found = evaluated("clip", {"x": x}, alpha=dtype(-0.5), beta=dtype(1.25))

    near(found, [-0.5, -0.5, 0.1, 1.25, np.nan], dtype)


def test_clip_between_equal_bounds_was_valid_until_ios_16(direct: Any) -> None:
    inputs = {"x": torch.tensor([1.0, 3.0]), "alpha": torch.tensor(2.0), "beta": torch.tensor(2.0)}

    assert direct("clip", inputs, opset=6).tolist() == [2, 2]
    with pytest.raises(InputFileError, match="not less"):
        direct("clip", inputs, opset=7)


def test_clip_with_crossed_bounds_is_refused(direct: Any) -> None:
    inputs = {"x": torch.tensor([1.0]), "alpha": torch.tensor(2.0), "beta": torch.tensor(-2.0)}

    with pytest.raises(UnverifiableError):
        direct("clip", inputs, opset=5)


@pytest.mark.parametrize("dtype", [*DTYPES, np.int32])
def test_threshold_is_a_lower_bound(evaluated: Any, inferred: Any, dtype: Any) -> None:
    x = np.array([-3, 1, 2, 5], dtype)

    found = evaluated("threshold", {"x": x}, alpha=dtype(2))

    assert found.tolist() == [2, 2, 2, 5]
    assert inferred("threshold", {"x": x}, alpha=dtype(2)).tolist() == [2, 2, 2, 5]
    assert found.dtype == torch.from_numpy(x).dtype


def test_round_goes_to_the_nearest_integer(evaluated: Any, inferred: Any) -> None:
    x = np.array([0.5, 2.5, -1.2, -1.7, 0.49999997, 3e9], np.float32)

    found = evaluated("round", {"x": x})

    assert found.tolist() == [0, 2, -1, -2, 0, 3e9]
    near(found, inferred("round", {"x": x}))


@pytest.mark.parametrize("half", [1.5, -0.5, -1.5, 3.5])
def test_round_of_other_halves_is_refused(evaluated: Any, half: float) -> None:
    # The documentation says that 0.5 goes to 0, and no more. value_inference rounds to even.
    with pytest.raises(UnverifiableError, match="halfway"):
        evaluated("round", {"x": np.float32([half])})


@pytest.mark.parametrize("kind", ["abs", "sign", "square", "exp2"])
def test_integers_stay_integers(evaluated: Any, inferred: Any, kind: str) -> None:
    x = np.array([0, 1, 5, 30], np.int32) if kind == "exp2" else np.array([-7, 0, 3], np.int32)

    found = evaluated(kind, {"x": x})

    assert found.dtype == torch.int32
    assert found.tolist() == inferred(kind, {"x": x}).tolist()


@pytest.mark.parametrize(
    ("kind", "value"), [("abs", -(2**31)), ("square", 46341), ("exp2", 31), ("exp2", -1)]
)
def test_integers_that_leave_int32_are_refused(evaluated: Any, kind: str, value: int) -> None:
    with pytest.raises(UnverifiableError):
        evaluated(kind, {"x": np.array([value], np.int32)})


def test_the_sign_of_nan_is_refused(evaluated: Any) -> None:
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated("sign", {"x": np.float32([np.nan])})


def test_a_dtype_that_is_not_documented_is_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="int32"):
        direct("exp", {"x": torch.tensor([1], dtype=torch.int32)})


def test_logical_not(evaluated: Any) -> None:
    assert evaluated("logical_not", {"x": np.array([True, False])}).tolist() == [False, True]


CASTS = [
    (np.float32, "int32", [-1.9, -0.5, 0.5, 2.9], [-1, 0, 0, 2]),
    (np.float16, "int32", [-3.5, 7.75], [-3, 7]),
    (np.float32, "int8", [-128.9, 127.5], [-128, 127]),
    (np.float32, "uint8", [-0.9, 255.9], [0, 255]),
    (np.float32, "int16", [-32768.0, 32767.0], [-32768, 32767]),
    (np.float32, "uint16", [0.0, 65535.0], [0, 65535]),
    (np.float32, "fp16", [1.0002, 65519.0, 65520.0, -1e9], [1.0, 65504, math.inf, -math.inf]),
    (np.float32, "bool", [0.0, -0.0, 1e-9, -2.0], [False, False, True, True]),
    (np.int32, "fp32", [-(2**31), 16777217], [-2147483648.0, 16777216.0]),
    (np.int32, "bool", [0, -1, 2], [False, True, True]),
    (np.int32, "uint8", [0, 255], [0, 255]),
    (np.bool_, "int32", [True, False], [1, 0]),
    (np.bool_, "fp16", [True, False], [1.0, 0.0]),
    (np.bool_, "uint16", [True, False], [1, 0]),
    (np.uint16, "int32", [65535], [65535]),
    (np.int8, "fp32", [-128], [-128.0]),
    (np.uint8, "fp16", [255], [255.0]),
]


@pytest.mark.parametrize(("dtype", "wanted", "values", "expected"), CASTS)
def test_cast_converts(
    evaluated: Any, inferred: Any, dtype: Any, wanted: str, values: Any, expected: Any
) -> None:
    x = np.array(values, dtype)

    found = evaluated("cast", {"x": x}, dtype=wanted)

    assert found.tolist() == expected
    with np.errstate(all="ignore"):
        second = inferred("cast", {"x": x}, dtype=wanted)
    # NumPy gives a negative float as uint8 by chance; the documentation's types are the same.
    assert second.tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "wanted", "value"),
    [
        (np.float32, "int32", np.nan),
        (np.float32, "int32", np.inf),
        (np.float32, "int32", 2147483648.0),
        (np.float32, "uint8", -1.0),
        (np.float32, "uint8", 256.0),
        (np.int32, "uint16", 65536),
        (np.float32, "int16", 32768.0),
        (np.int32, "int8", -129),
        (np.int32, "int8", 128),
        (np.int32, "uint16", -1),
        (np.int32, "int16", -32769),
    ],
)
def test_cast_out_of_range_is_refused(
    evaluated: Any, dtype: Any, wanted: str, value: float
) -> None:
    with pytest.raises(UnverifiableError):
        evaluated("cast", {"x": np.array([value], dtype)}, dtype=wanted)


def test_cast_to_small_integers_came_with_ios_17(direct: Any) -> None:
    inputs = {"x": torch.tensor([3.0]), "dtype": "int8"}

    assert direct("cast", inputs, TensorType("int8", (1,)), opset=7).tolist() == [3]
    with pytest.raises(UnverifiableError, match="int8"):
        direct("cast", inputs, TensorType("int8", (1,)), opset=6)


def test_an_argument_that_is_not_documented_is_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="slope"):
        direct("exp", {"x": torch.ones(1), "slope": torch.ones(())})


def test_random_numbers_are_refused(evaluated: Any) -> None:
    with pytest.raises(UnverifiableError, match="random"):
        evaluated("random_uniform", {"shape": np.array([2, 3], np.int32)})


# coremltools writes every default into the file; packages of other tools may leave them out.
@pytest.mark.parametrize("opset", [5, 8])
@pytest.mark.parametrize("kind", ["inverse", "log", "rsqrt"])
def test_an_epsilon_that_the_file_leaves_out(direct: Any, kind: str, opset: int) -> None:
    # A logarithm's 1e-45 shows next to subnormal values only.
    x = torch.tensor([1e-38 if kind == "log" else 1e-5, 0.5, 3.0])

    near(direct(kind, {"x": x}, opset=opset), PLAIN[kind][0](x.double()))


def test_the_default_epsilons_at_zero(direct: Any) -> None:
    assert direct("inverse", {"x": torch.zeros(1)}).item() == pytest.approx(1e4)
    assert direct("rsqrt", {"x": torch.zeros(1)}).item() == pytest.approx(1e6)
