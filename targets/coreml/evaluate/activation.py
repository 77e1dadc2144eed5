"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .call import Call, Operator
from .elementwise import FLOATS, of_dtype, per_channel, refuse_nan, rounded, scalar
from .sums import total

__all__ = ["OPERATORS"]

_GELU = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")


def _plain(function: Callable[[torch.Tensor], torch.Tensor]) -> Operator:
    return lambda call: rounded(of_dtype(call, "x", FLOATS), function)


def _with_alpha(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Operator:
    def operator(call: Call) -> torch.Tensor:
        x = of_dtype(call, "x", FLOATS)
        alpha = scalar(call, "alpha", x)
        return rounded(x, lambda wide: function(wide, alpha))

    return operator


def _with_both(
    function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Operator:
    def operator(call: Call) -> torch.Tensor:
        x = of_dtype(call, "x", FLOATS)
        alpha, beta = scalar(call, "alpha", x), scalar(call, "beta", x)
        return rounded(x, lambda wide: function(wide, alpha, beta))

    return operator


def _no_nan(operator: Operator) -> Operator:
    """For formulas of max, min and comparisons, which do not say what becomes of a NaN."""

    def checked(call: Call) -> torch.Tensor:
        refuse_nan(call, call.tensor("x"))
        found: torch.Tensor = operator(call)
        return found

    return checked


def _clamped_relu(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return torch.minimum(beta, torch.where(x >= 0, x, alpha * x))


def _elu(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, alpha * torch.expm1(x))


def _leaky_relu(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= 0, x, alpha * x)


def _thresholded_relu(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= alpha, x, torch.zeros_like(x))


def _sigmoid_hard(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return (alpha * x + beta).clamp(0, 1)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    """`log(1 + e^x)` in a form that no finite x overflows."""
    return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)


def _gelu(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    mode = call.text("mode", "EXACT", _GELU)
    if mode == "EXACT":
        return rounded(x, lambda wide: 0.5 * wide * (1 + torch.erf(wide / math.sqrt(2))))
    if mode == "SIGMOID_APPROXIMATION":
        return rounded(x, lambda wide: wide * torch.sigmoid(1.702 * wide))
    inner = math.sqrt(2 / math.pi)
    return rounded(
        x, lambda wide: 0.5 * wide * (1 + torch.tanh(inner * (wide + 0.044715 * wide**3)))
    )


def _prelu(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if x.dim() not in (3, 4, 5):
        raise call.damaged(f"x is of rank {x.dim()}, not 3, 4 or 5")
    alpha = per_channel(call, "alpha", x)
    return rounded(x, lambda wide: torch.where(wide > 0, wide, alpha * wide))


def _softplus_parametric(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if x.dim() != 4:
        call.refuse(f"x of rank {x.dim()}, where rank 4 is documented")
    alpha, beta = per_channel(call, "alpha", x), per_channel(call, "beta", x)
    return rounded(x, lambda wide: alpha * _softplus(beta * wide))


def _softmax(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    axis = call.integer("axis", -1)
    if not -x.dim() <= axis < x.dim():
        raise call.damaged(f"axis {axis} of a tensor of rank {x.dim()}")
    if x.dtype == torch.float32 or call.accumulate == torch.float32:
        return rounded(x, lambda wide: torch.softmax(wide, axis))
    if not x.numel():
        return x
    # Subtracting the largest changes nothing but the range, which e^x would leave.
    powers = torch.exp(x.float() - x.float().amax(axis, keepdim=True)).half().float()
    return (powers / total(powers, [axis], call.accumulate, keepdim=True)).half()


OPERATORS: dict[str, Operator] = {
    "clamped_relu": _no_nan(_with_both(_clamped_relu)),
    "elu": _with_alpha(_elu),
    "gelu": _gelu,
    "leaky_relu": _with_alpha(_leaky_relu),
    "linear_activation": _with_both(lambda x, alpha, beta: x * alpha + beta),
    "prelu": _prelu,
    "relu": _no_nan(_plain(lambda x: x.clamp(min=0))),
    "relu6": _no_nan(_plain(lambda x: x.clamp(0, 6))),
    "scaled_tanh": _with_both(lambda x, alpha, beta: alpha * torch.tanh(beta * x)),
    "sigmoid": _plain(torch.sigmoid),
    "sigmoid_hard": _no_nan(_with_both(_sigmoid_hard)),
    "silu": _plain(lambda x: x * torch.sigmoid(x)),
    "softmax": _softmax,
    "softplus": _plain(_softplus),
    "softplus_parametric": _softplus_parametric,
    "softsign": _plain(lambda x: x / (1 + x.abs())),
    "thresholded_relu": _no_nan(_with_alpha(_thresholded_relu)),
}
