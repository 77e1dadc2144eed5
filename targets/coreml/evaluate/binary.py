"""Elementwise operators of two tensors, and `select`; they broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from .call import Call, Operator
from .elementwise import INT32, NUMBERS, narrowed, of_dtype, refuse_nan

__all__ = ["OPERATORS"]

_BOOL = (torch.bool,)
_Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _pair(call: Call, dtypes: Collection[torch.dtype] = NUMBERS) -> tuple[torch.Tensor, ...]:
    x, y = of_dtype(call, "x", dtypes), of_dtype(call, "y", dtypes)
    if x.dtype != y.dtype:
        call.refuse("x and y of different dtypes")
    return x, y


def _arithmetic(function: _Function) -> Operator:
    """float16 is computed in float32 and rounded; int32 that overflows is refused."""

    def operator(call: Call) -> torch.Tensor:
        x, y = _pair(call)
        if x.dtype == torch.int32:
            # The product of two int32 values fits int64.
            return narrowed(call, function(x.long(), y.long()))
        return function(x.float(), y.float()).to(x.dtype)

    return operator


def _comparison(function: _Function) -> Operator:
    return lambda call: function(*_pair(call))


def _logical(function: _Function) -> Operator:
    return lambda call: function(*_pair(call, _BOOL))


def _extreme(function: _Function) -> Operator:
    """`x > y ? x : y` and the like: an order of zeros and of NaN is not promised."""

    def operator(call: Call) -> torch.Tensor:
        x, y = _pair(call)
        refuse_nan(call, x, y)
        return function(x, y)

    return operator


def _real_div(call: Call) -> torch.Tensor:
    x, y = _pair(call)
    if x.dtype != torch.int32:
        return (x.float() / y.float()).to(x.dtype)
    _refuse_zero(call, y)
    if bool((torch.fmod(x.long(), y.long()) != 0).any()):
        call.refuse("integers that do not divide evenly: the result is an integer")
    return narrowed(call, torch.div(x.long(), y.long(), rounding_mode="trunc"))


def _floor_div(call: Call) -> torch.Tensor:
    x, y = _pair(call)
    if x.dtype == torch.int32:
        _refuse_zero(call, y)
        return narrowed(call, torch.div(x.long(), y.long(), rounding_mode="floor"))
    # float64 holds the quotient of two float32 values well enough to tell on which side of an
    # integer it lies; a runtime that divides in x's own dtype may round it onto the integer.
    exact = torch.div(x.double(), y.double(), rounding_mode="floor").to(x.dtype)
    rounded = torch.floor((x.float() / y.float()).to(x.dtype))
    if not torch.allclose(exact, rounded, rtol=0, atol=0, equal_nan=True):
        call.refuse("a quotient that lies so close below an integer that rounding decides")
    return exact


def _mod(call: Call) -> torch.Tensor:
    """The remainder that `%` is in Python, the language of the documentation: y's sign."""
    x, y = _pair(call)
    _refuse_zero(call, y)
    if x.dtype == torch.int32:
        return torch.remainder(x.long(), y.long()).int()
    if not bool(torch.isfinite(x).all() & torch.isfinite(y).all()):
        call.refuse("NaN or infinity")
    return torch.remainder(x.double(), y.double()).to(x.dtype)


def _pow(call: Call) -> torch.Tensor:
    x, y = _pair(call)
    if x.dtype != torch.int32:
        return torch.pow(x.float(), y.float()).to(x.dtype)
    if bool((y < 0).any()):
        call.refuse("an integer to a negative power")
    near = torch.pow(x.double(), y.double())
    if bool(((near < INT32.min) | (near > INT32.max)).any()):
        call.refuse("a value outside int32")
    return near.round().int()


def _refuse_zero(call: Call, y: torch.Tensor) -> None:
    if bool((y == 0).any()):
        call.refuse("division by zero")


def _select(call: Call) -> torch.Tensor:
    cond = of_dtype(call, "cond", _BOOL)
    if not (call.has("a") and call.has("b")):
        call.refuse("no a or no b: the order of the indices is not documented")
    a, b = (of_dtype(call, name, (*NUMBERS, torch.bool)) for name in ("a", "b"))
    if a.dtype != b.dtype:
        call.refuse("a and b of different dtypes")
    return torch.where(cond, a, b)


OPERATORS: dict[str, Operator] = {
    "add": _arithmetic(torch.add),
    "equal": _comparison(torch.eq),
    "floor_div": _floor_div,
    "greater": _comparison(torch.gt),
    "greater_equal": _comparison(torch.ge),
    "less": _comparison(torch.lt),
    "less_equal": _comparison(torch.le),
    "logical_and": _logical(torch.logical_and),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    "maximum": _extreme(torch.maximum),
    "minimum": _extreme(torch.minimum),
    "mod": _mod,
    "mul": _arithmetic(torch.mul),
    "not_equal": _comparison(torch.ne),
    "pow": _pow,
    "real_div": _real_div,
    "select": _select,
    "sub": _arithmetic(torch.sub),
}
