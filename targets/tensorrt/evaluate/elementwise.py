"""Layers that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, Operator
from .widening import known, require_floats, require_room, wide, widened

__all__ = ["OPERATORS"]

_Binary = Callable[[Call, torch.Tensor, torch.Tensor], torch.Tensor]
_INTEGERS = (torch.int32, torch.int64)


def _elementwise(call: Call) -> torch.Tensor:
    compute = call.choice("op", _BINARY)
    first, second = call.tensor(0), call.tensor(1)
    if first.dim() != second.dim():
        raise call.contradiction(f"it combines ranks {first.dim()} and {second.dim()}")
    return compute(call, first, second)


def _arithmetic(compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> _Binary:
    def run(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        _require_numbers(call, first)
        result = compute(first, second)
        if not result.is_floating_point():
            require_room(call, result, compute(first.double(), second.double()))
        return result

    return run


def _require_numbers(call: Call, value: torch.Tensor) -> None:
    """8-bit integers stand for quantized floats in TensorRT: their arithmetic is not theirs."""
    if value.dtype not in (torch.float32, *_INTEGERS):
        call.refuse(f"it computes with {str(value.dtype).removeprefix('torch.')}")


def _extreme(compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> _Binary:
    def run(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        _require_numbers(call, first)
        known(call, first, second)
        return compute(first, second)

    return run


def _quotient(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Integers truncate toward zero, as ONNX says of the Div that becomes this layer."""
    _require_numbers(call, first)
    if not first.is_floating_point():
        _require_quotient(call, first, second)
        return torch.div(first, second, rounding_mode="trunc")
    return first / second


def _floor_quotient(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The floor of the quotient.

    For floats the rounded quotient may reach an integer that the exact one does not; which one
    TensorRT takes is not documented, so it is refused where they differ.
    """
    _require_numbers(call, first)
    if not first.is_floating_point():
        _require_quotient(call, first, second)
        return torch.div(first, second, rounding_mode="floor")
    rounded = torch.floor(first / second)
    exact = torch.floor(first.double() / second.double())
    if not torch.equal(torch.nan_to_num(rounded), torch.nan_to_num(exact.float())):
        call.refuse("the quotient is within rounding of an integer")
    return rounded


def _require_quotient(call: Call, first: torch.Tensor, second: torch.Tensor) -> None:
    if bool((second == 0).any()):
        call.refuse("an integer is divided by zero")
    if bool(((first == torch.iinfo(first.dtype).min) & (second == -1)).any()):
        call.refuse("the integer quotient overflows")


def _power(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Documented for floats only."""
    require_floats(call, first, second)
    return torch.pow(first, second)


def _logical(compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> _Binary:
    def run(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        if first.dtype != torch.bool or second.dtype != torch.bool:
            call.refuse("a logical operation on what is not bool")
        return compute(first, second)

    return run


def _comparison(compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> _Binary:
    def run(call: Call, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        if first.dtype == torch.bool and compute is not torch.eq:
            call.refuse("an order of bool")
        return compute(first, second)

    return run


_BINARY: dict[str, _Binary] = {
    "SUM": _arithmetic(torch.add),
    "PROD": _arithmetic(torch.mul),
    "SUB": _arithmetic(torch.sub),
    "MAX": _extreme(torch.maximum),
    "MIN": _extreme(torch.minimum),
    "DIV": _quotient,
    "FLOOR_DIV": _floor_quotient,
    "POW": _power,
    "AND": _logical(torch.logical_and),
    "OR": _logical(torch.logical_or),
    "XOR": _logical(torch.logical_xor),
    "EQUAL": _comparison(torch.eq),
    "GREATER": _comparison(torch.gt),
    "LESS": _comparison(torch.lt),
}

# Rounding is to nearest even, says UnaryOperation.ROUND, and so does torch.round.
_FLOAT_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "EXP": torch.exp,
    "LOG": torch.log,
    "SQRT": torch.sqrt,
    "RECIP": torch.reciprocal,
    "ABS": torch.abs,
    "NEG": torch.neg,
    "SIN": torch.sin,
    "COS": torch.cos,
    "TAN": torch.tan,
    "SINH": torch.sinh,
    "COSH": torch.cosh,
    "ASIN": torch.asin,
    "ACOS": torch.acos,
    "ATAN": torch.atan,
    "ASINH": torch.asinh,
    "ACOSH": torch.acosh,
    "ATANH": torch.atanh,
    "CEIL": torch.ceil,
    "FLOOR": torch.floor,
    "ERF": torch.erf,
    "SIGN": torch.sign,
    "ROUND": torch.round,
    "ISINF": torch.isinf,
    "ISNAN": torch.isnan,
}
# The operator page lists int32 and int64 for these alone.
_INTEGER_UNARY = {name: _FLOAT_UNARY[name] for name in ("ABS", "NEG", "SIGN")}


def _unary(call: Call) -> torch.Tensor:
    value = call.tensor()
    if value.dtype == torch.bool:
        return call.choice("op", {"NOT": torch.logical_not})(value)
    if value.dtype in _INTEGERS:
        return call.choice("op", _INTEGER_UNARY)(value)
    require_floats(call, value)
    compute = call.choice("op", _FLOAT_UNARY)
    if compute is torch.sign:
        known(call, value)
    return compute(value)


def _activation(call: Call) -> torch.Tensor:
    """The formulas of `ActivationType`, each reading the parameters that it has."""
    value = call.tensor()
    if value.dtype in _INTEGERS:
        call.ignore("alpha", "beta")  # RELU has no parameter
        return call.choice("type", {"RELU": torch.relu})(value)
    require_floats(call, value)
    compute = call.choice("type", _ACTIVATIONS)
    result = compute(call, value)
    call.ignore("alpha", "beta")  # "Other activations ignore this parameter"
    return result


def _clip(call: Call, x: torch.Tensor) -> torch.Tensor:
    known(call, x)
    return x.clamp(max=call.number("beta")).clamp(min=call.number("alpha"))


def _relu(call: Call, x: torch.Tensor) -> torch.Tensor:
    known(call, x)
    return torch.relu(x)


def _hard_sigmoid(call: Call, x: torch.Tensor) -> torch.Tensor:
    known(call, x)
    return (call.number("alpha") * x + call.number("beta")).clamp(0, 1)


def _selu(call: Call, x: torch.Tensor) -> torch.Tensor:
    alpha, beta = call.number("alpha"), call.number("beta")
    return torch.where(x > 0, beta * x, beta * (alpha * torch.expm1(x)))


def _softplus(call: Call, x: torch.Tensor) -> torch.Tensor:
    """log(exp(y) + 1) without overflow."""
    y = call.number("beta") * x
    return call.number("alpha") * torch.logaddexp(y, torch.zeros((), dtype=y.dtype))


def _elu(call: Call, x: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= 0, x, call.number("alpha") * torch.expm1(x))


_ACTIVATIONS: dict[str, Callable[[Call, torch.Tensor], torch.Tensor]] = {
    "RELU": _relu,
    "SIGMOID": lambda call, x: torch.sigmoid(x),
    "TANH": lambda call, x: torch.tanh(x),
    "LEAKY_RELU": lambda call, x: torch.where(x >= 0, x, call.number("alpha") * x),
    "ELU": _elu,
    "SELU": _selu,
    "SOFTSIGN": lambda call, x: x / (1 + x.abs()),
    "SOFTPLUS": _softplus,
    "CLIP": _clip,
    "HARD_SIGMOID": _hard_sigmoid,
    "SCALED_TANH": lambda call, x: call.number("alpha") * torch.tanh(call.number("beta") * x),
    "THRESHOLDED_RELU": lambda call, x: torch.where(x > call.number("alpha"), x, 0.0),
    "GELU_ERF": lambda call, x: torch.nn.functional.gelu(x),
    "GELU_TANH": lambda call, x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def _parametric_relu(call: Call) -> torch.Tensor:
    value, slopes = call.tensor(0), call.tensor(1)
    require_floats(call, value, slopes)
    return torch.where(value < 0, value * slopes, value)


def _scale(call: Call) -> torch.Tensor:
    """(input * scale + shift) ^ power, weights that are not set being 1, 0 and 1."""
    value = call.tensor()
    require_floats(call, value)
    shape = call.choice("mode", _SCALE_SHAPES)(call, value)
    scale, shift, power = (call.weights(name) for name in ("scale", "shift", "power"))
    call.ignore("channel_axis")  # UNIFORM has none
    if scale is not None:
        value = value * wide(scale).reshape(shape)
    if shift is not None:
        value = value + wide(shift).reshape(shape)
    if power is not None:
        value = torch.pow(value, wide(power).reshape(shape))
    return value


def _channel_shape(call: Call, value: torch.Tensor) -> list[int]:
    axis = call.integer("channel_axis")
    return [size if index == axis else 1 for index, size in enumerate(value.shape)]


_SCALE_SHAPES: dict[str, Callable[[Call, torch.Tensor], list[int]]] = {
    "UNIFORM": lambda call, value: [1] * value.dim(),
    "CHANNEL": _channel_shape,
    # The builder wants as many weights as there are elements from the channels on.
    "ELEMENTWISE": lambda call, value: list(value.shape[call.integer("channel_axis") :]),
}


def _cumulative(call: Call) -> torch.Tensor:
    """Successive sums along an axis; an exclusive one leaves out the element itself."""
    value = call.tensor()
    _require_numbers(call, value)
    (axis,) = call.integers_of(1)
    if not -value.dim() <= axis < value.dim():
        call.refuse(f"axis {axis} of rank {value.dim()}")
    axis %= value.dim()  # the parser hands ONNX's negative axes through
    compute = call.choice("op", {"SUM": torch.cumsum})
    reverse, exclusive = call.flag("reverse"), call.flag("exclusive")
    if reverse:
        value = value.flip(axis)
    sums = compute(value, axis, dtype=value.dtype)
    if not value.is_floating_point():
        require_room(call, sums, compute(value, axis, dtype=torch.float64))
    if exclusive and value.shape[axis]:
        start = torch.zeros_like(sums.narrow(axis, 0, 1))
        sums = torch.cat([start, sums.narrow(axis, 0, value.shape[axis] - 1)], axis)
    return sums.flip(axis) if reverse else sums


OPERATORS: dict[str, Operator] = {
    "ELEMENTWISE": widened(_elementwise),
    "UNARY": widened(_unary),
    "ACTIVATION": widened(_activation),
    "PARAMETRIC_RELU": widened(_parametric_relu),
    "SCALE": widened(_scale),
    "CUMULATIVE": widened(_cumulative),
}
