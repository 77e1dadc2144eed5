"""ACTIVATION: every ActivationType and the parameters that it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper
from scipy import special

Evaluated = Callable[..., Any]


def activation(kind: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        layer = network.add_activation(x, getattr(trt.ActivationType, kind))
        layer.alpha, layer.beta = alpha, beta
        return layer.get_output(0)

    return build


# The formulas of ActivationType, a and b being alpha and beta.
_FORMULAS: dict[str, Callable[[Any, float, float], Any]] = {
    "RELU": lambda x, a, b: np.maximum(x, 0),
    "SIGMOID": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "TANH": lambda x, a, b: np.tanh(x),
    "LEAKY_RELU": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ELU": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "SELU": lambda x, a, b: np.where(x > 0, b * x, b * (a * np.exp(x) - a)),
    "SOFTSIGN": lambda x, a, b: x / (1 + np.abs(x)),
    "SOFTPLUS": lambda x, a, b: a * np.log(np.exp(b * x) + 1),
    "CLIP": lambda x, a, b: np.maximum(a, np.minimum(b, x)),
    "HARD_SIGMOID": lambda x, a, b: np.maximum(0, np.minimum(1, a * x + b)),
    "SCALED_TANH": lambda x, a, b: a * np.tanh(b * x),
    "THRESHOLDED_RELU": lambda x, a, b: np.where(x > a, x, 0),
    "GELU_ERF": lambda x, a, b: 0.5 * x * (1 + special.erf(np.sqrt(0.5) * x)),
    "GELU_TANH": lambda x, a, b: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (0.044715 * x**3 + x)))
    ),
}
_PARAMETERS = {
    "alpha": {
        *("LEAKY_RELU", "ELU", "SELU", "SOFTPLUS", "CLIP", "HARD_SIGMOID", "SCALED_TANH"),
        "THRESHOLDED_RELU",
    },
    "beta": {"SELU", "SOFTPLUS", "CLIP", "HARD_SIGMOID", "SCALED_TANH"},
}


@pytest.mark.parametrize("kind", sorted(trt.ActivationType.__members__))
@pytest.mark.parametrize(("alpha", "beta"), [(0.75, 1.5), (-0.5, 0.25)])
def test_formula(evaluated: Evaluated, kind: str, alpha: float, beta: float) -> None:
    x = torch.tensor([-30.0, -2.0, -0.5, 0.0, 0.25, 0.75, 1.0, 3.0, 30.0])
    expected = torch.from_numpy(_FORMULAS[kind](x.double().numpy(), alpha, beta)).float()
    torch.testing.assert_close(evaluated(activation(kind, alpha, beta), x), expected)
    halves = evaluated(activation(kind, alpha, beta), x.half())
    torch.testing.assert_close(halves, expected.half())


def test_softplus_does_not_overflow(evaluated: Evaluated) -> None:
    found = evaluated(activation("SOFTPLUS", 1, 1), torch.tensor([200.0]))
    assert found.tolist() == [200.0]


def test_bounds_that_cross(evaluated: Evaluated) -> None:
    """max(alpha, min(beta, x)): alpha wins."""
    assert evaluated(activation("CLIP", 2, 1), torch.zeros(1)).tolist() == [2.0]


def test_relu_of_integers_and_of_nan(evaluated: Evaluated) -> None:
    assert evaluated(activation("RELU"), torch.tensor([-1, 2])).tolist() == [0, 2]
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(activation("RELU"), torch.tensor([float("nan")]))


@pytest.mark.parametrize("kind", sorted(_PARAMETERS["alpha"]))
def test_parameters_are_seen(seen: Callable[..., bool], kind: str) -> None:
    x = (torch.tensor([-2.0, -0.4, 0.3, 0.55, 0.9, 2.5]),)
    build = activation(kind, 0.5, 1.0)
    assert seen(build, x, "ACTIVATION", alpha=0.6)
    assert seen(build, x, "ACTIVATION", beta=0.7) == (kind in _PARAMETERS["beta"])
    assert seen(build, x, "ACTIVATION", type="TANH")
    assert seen(build, x, "ACTIVATION", type="NEW")


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {"alpha": 1.67, "gamma": 1.05}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("ThresholdedRelu", {"alpha": 0.5}),
        ("HardSwish", {}),
        ("Softplus", {}),
        ("Gelu", {"approximate": "tanh"}),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any]
) -> None:
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    against_onnxruntime(helper.make_node(op, ["x"], ["y"], **attributes), {"x": x})
