"""Activation functions, against torch in float64 and coremltools' own values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray
from torch.nn import functional

X = np.array([[-90, -7.5, -3, -1, -0.25, -0.0, 0, 0.5, 1, 2.9, 3, 6.5, 40, 100]], np.float32)
IMAGE = np.linspace(-3, 3, 2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
ALPHA = np.array([0.5, -1.0, 2.0], np.float32)
BETA = np.array([1.5, 0.25, -2.0], np.float32)
BY_CHANNEL = (3, 1, 1)

Values = dict[str, Any]
CASES: list[tuple[str, Values, Any]] = [
    ("relu", {}, functional.relu),
    ("relu6", {}, functional.relu6),
    ("sigmoid", {}, torch.sigmoid),
    ("silu", {}, functional.silu),
    ("softplus", {}, lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    ("softsign", {}, functional.softsign),
    ("softmax", {}, lambda x: torch.softmax(x, -1)),
    ("gelu", {}, functional.gelu),
    ("gelu", {"mode": "EXACT"}, functional.gelu),
    ("gelu", {"mode": "TANH_APPROXIMATION"}, lambda x: functional.gelu(x, approximate="tanh")),
    ("gelu", {"mode": "SIGMOID_APPROXIMATION"}, lambda x: x * torch.sigmoid(1.702 * x)),
    ("elu", {"alpha": 0.75}, lambda x: functional.elu(x, 0.75)),
    ("elu", {"alpha": -1.5}, lambda x: functional.elu(x, -1.5)),
    ("leaky_relu", {"alpha": 0.125}, lambda x: functional.leaky_relu(x, 0.125)),
    ("leaky_relu", {"alpha": -2.0}, lambda x: functional.leaky_relu(x, -2.0)),
    ("thresholded_relu", {"alpha": 0.5}, lambda x: torch.where(x >= 0.5, x, 0.0)),
    ("thresholded_relu", {"alpha": -1.0}, lambda x: torch.where(x >= -1, x, 0.0)),
    ("linear_activation", {"alpha": 2.5, "beta": -0.5}, lambda x: 2.5 * x - 0.5),
    ("scaled_tanh", {"alpha": 1.5, "beta": 0.25}, lambda x: 1.5 * torch.tanh(0.25 * x)),
    ("sigmoid_hard", {"alpha": 0.25, "beta": 0.5}, lambda x: (0.25 * x + 0.5).clamp(0, 1)),
    (
        "clamped_relu",
        {"alpha": 0.5, "beta": 3.0},
        lambda x: torch.where(x >= 0, x, 0.5 * x).clamp(max=3),
    ),
    # A negative alpha makes negative x large: beta bounds it too.
    (
        "clamped_relu",
        {"alpha": -2.0, "beta": 3.0},
        lambda x: torch.where(x >= 0, x, -2 * x).clamp(max=3),
    ),
]
NAMES = [f"{kind}-{'-'.join(map(str, values.values()))}" for kind, values, _ in CASES]


def near(found: Any, want: torch.Tensor | NDArray[Any], dtype: Any = np.float32) -> None:
    expected = torch.from_numpy(np.asarray(want, dtype=dtype))
    rtol = 2**-9 if dtype == np.float16 else 2e-6
    torch.testing.assert_close(found, expected, rtol=rtol, atol=2e-7, equal_nan=True)


@pytest.mark.parametrize("opset", [5, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("kind", "values", "function"), CASES, ids=NAMES)
def test_an_activation_is_its_formula(
    evaluated: Any, kind: str, values: Values, function: Any, dtype: Any, opset: int
) -> None:
    constants = {k: v if isinstance(v, str) else dtype(v) for k, v in values.items()}

    found = evaluated(kind, {"x": X.astype(dtype)}, opset=opset, **constants)

    near(found, function(torch.from_numpy(X).double()), dtype)


@pytest.mark.parametrize(("kind", "values", "function"), CASES, ids=NAMES)
def test_coremltools_computes_the_same(
    evaluated: Any, inferred: Any, kind: str, values: Values, function: Any
) -> None:
    # Its 1 / (1 + e^-x) is less exact far from zero, where float32 e^x overflows.
    x = X[:, 1:-1]
    constants = {k: v if isinstance(v, str) else np.float32(v) for k, v in values.items()}
    second = inferred(kind, {"x": x}, **constants)
    if second is None:
        assert kind == "silu"
        return

    found = evaluated(kind, {"x": x}, **constants)

    torch.testing.assert_close(found, torch.from_numpy(second).float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "values"),
    [("prelu", {"alpha": ALPHA}), ("softplus_parametric", {"alpha": ALPHA, "beta": BETA})],
)
def test_parameters_belong_to_channels(
    evaluated: Any, inferred: Any, kind: str, values: Values
) -> None:
    x, a, b = (torch.from_numpy(v).double() for v in (IMAGE, ALPHA, BETA))
    a, b = a.reshape(BY_CHANNEL), b.reshape(BY_CHANNEL)
    want = torch.where(x > 0, x, a * x) if kind == "prelu" else a * torch.log(1 + torch.exp(b * x))

    found = evaluated(kind, {"x": IMAGE}, **values)

    near(found, want)
    near(found, inferred(kind, {"x": IMAGE}, **values))


@pytest.mark.parametrize("rank", [3, 5])
def test_prelu_takes_rank_3_to_5(evaluated: Any, rank: int) -> None:
    x = IMAGE.reshape((2, 3, 4) if rank == 3 else (2, 3, 2, 1, 2))
    alpha = np.full(3, 0.25, np.float32)

    near(
        evaluated("prelu", {"x": x}, alpha=alpha), functional.leaky_relu(torch.from_numpy(x), 0.25)
    )


def test_prelu_of_other_ranks_or_lengths_is_damaged(direct: Any) -> None:
    with pytest.raises(InputFileError, match="rank 2"):
        direct("prelu", {"x": torch.ones(2, 3), "alpha": torch.ones(3)})
    with pytest.raises(InputFileError, match="alpha"):
        direct("prelu", {"x": torch.ones(2, 3, 1), "alpha": torch.ones(1)})


def test_parametric_softplus_is_documented_for_images_only(direct: Any) -> None:
    inputs = {"x": torch.ones(2, 3, 1), "alpha": torch.ones(3), "beta": torch.ones(3)}

    with pytest.raises(UnverifiableError, match="rank"):
        direct("softplus_parametric", inputs)


@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1, -2, 3])
def test_softmax_over_an_axis(evaluated: Any, axis: int, dtype: Any, accumulate: Any) -> None:
    x = IMAGE.astype(dtype)

    found = evaluated("softmax", {"x": x}, axis=axis, accumulate=accumulate)

    want = torch.softmax(torch.from_numpy(x).double(), axis).numpy().astype(dtype)
    torch.testing.assert_close(found, torch.from_numpy(want), rtol=2e-3, atol=1e-7)


def test_softmax_has_the_range_that_its_formula_has_on_paper(evaluated: Any) -> None:
    near(evaluated("softmax", {"x": np.float32([1000, 1000, -1000])}), [0.5, 0.5, 0])


def test_a_float32_parameter_of_a_float16_activation_is_not_rounded(evaluated: Any) -> None:
    # Since iOS 17 it may be of another dtype. 0.2 is 0.19995 in float16.
    found = evaluated("leaky_relu", {"x": np.float16([-1000])}, alpha=np.float32(0.20008))

    assert found.item() == np.float16(-1000 * np.float32(0.20008))


@pytest.mark.parametrize("kind", ["relu", "relu6", "clamped_relu", "sigmoid_hard"])
def test_max_and_min_of_nan_are_refused(direct: Any, kind: str) -> None:
    inputs = {"x": torch.tensor([math.nan])}
    if kind in ("clamped_relu", "sigmoid_hard"):
        inputs |= {"alpha": torch.tensor(0.5), "beta": torch.tensor(1.0)}

    with pytest.raises(UnverifiableError, match="NaN"):
        direct(kind, inputs)


def test_thresholded_relu_of_nan_is_refused(direct: Any) -> None:
    # "x if x >= alpha, otherwise 0" gives 0; value_inference keeps the NaN.
    with pytest.raises(UnverifiableError, match="NaN"):
        direct("thresholded_relu", {"x": torch.tensor([math.nan]), "alpha": torch.tensor(1.0)})


def test_an_unknown_mode_is_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="QUICK"):
        direct("gelu", {"x": torch.ones(1), "mode": "QUICK"})


def test_a_missing_or_wrong_parameter_is_damage(direct: Any) -> None:
    with pytest.raises(InputFileError, match="alpha is missing"):
        direct("elu", {"x": torch.ones(1)})
    with pytest.raises(InputFileError, match="alpha has 2 values"):
        direct("elu", {"x": torch.ones(1), "alpha": torch.ones(2)})
    with pytest.raises(InputFileError, match="axis 1"):
        direct("softmax", {"x": torch.ones(1), "axis": torch.tensor(1)})


def test_defaults_that_the_file_leaves_out(direct: Any) -> None:
    # coremltools writes every default into the file; packages of other tools may not.
    x = torch.from_numpy(IMAGE)

    near(direct("gelu", {"x": x}), functional.gelu(x.double()))
    near(direct("softmax", {"x": x}), torch.softmax(x.double(), -1))


def test_softmax_of_large_float16_values_whose_sums_are_float16(evaluated: Any) -> None:
    x = np.float16([[1000, 1000, -1000]])

    assert evaluated("softmax", {"x": x}, accumulate=torch.float16).tolist() == [[0.5, 0.5, 0]]
