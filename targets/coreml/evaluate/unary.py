"""Elementwise operators of one tensor: arithmetic, rounding, logic, casts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, Operator
from .elementwise import FLOATS, NUMBERS, narrowed, of_dtype, refuse_nan, rounded, scalar

__all__ = ["OPERATORS"]

_IOS17 = 7
_CASTS = ("int32", "fp16", "fp32", "bool")
_CASTS_IOS17 = (*_CASTS, "int8", "uint8", "int16", "uint16")
# The ranges of MIL's dtypes; uint16 lives in wider integers here.
_RANGES = {
    **{"int8": (-(2**7), 2**7 - 1), "uint8": (0, 2**8 - 1)},
    **{"int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)},
    "int32": (-(2**31), 2**31 - 1),
}
_HELD = {
    **{"int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16, "uint16": torch.int32},
    **{"int32": torch.int32, "fp16": torch.float16, "fp32": torch.float32, "bool": torch.bool},
}


def _of_float(function: Callable[[torch.Tensor], torch.Tensor]) -> Operator:
    return lambda call: rounded(of_dtype(call, "x", FLOATS), function)


def _abs(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    return narrowed(call, x.long().abs()) if x.dtype == torch.int32 else x.abs()


def _sign(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    refuse_nan(call, x)
    return x.sign()


def _square(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    return narrowed(call, x.long().square()) if x.dtype == torch.int32 else rounded(x, torch.square)


def _exp2(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    if x.dtype != torch.int32:
        return rounded(x, torch.exp2)
    if bool((x < 0).any()):
        call.refuse("a negative power of two as an integer")
    return narrowed(call, torch.ones_like(x, dtype=torch.long) << x.long().clamp(max=40))


def _clip(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    alpha, beta = scalar(call, "alpha", x), scalar(call, "beta", x)
    if call.opset >= _IOS17 and not bool(alpha < beta):
        raise call.damaged("alpha is not less than beta")
    if not bool(alpha <= beta):
        call.refuse("alpha greater than beta")
    # By the documented words a NaN is neither less than alpha nor greater than beta: it stays.
    return rounded(x, lambda wide: torch.clamp(wide, alpha, beta))


def _threshold(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    alpha = scalar(call, "alpha", x)
    if x.dtype == torch.int32:
        return torch.maximum(x, alpha)
    return rounded(x, lambda wide: torch.where(wide < alpha, alpha, wide))


def _round(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    halves = x[(x - x.floor()) == 0.5]
    # "0.5 is rounded to 0" leaves three rules: to even, towards zero, and down. They agree on a
    # positive half above an even integer only.
    if bool(((halves < 0) | (halves.floor() % 2 != 0)).any()):
        call.refuse("a value halfway between two integers, other than 0.5 above an even one")
    return x.round()


def _with_epsilon(default: float, function: Callable[[torch.Tensor], torch.Tensor]) -> Operator:
    """`function(x + epsilon)`, where epsilon may be of another float dtype than x."""

    def operator(call: Call) -> torch.Tensor:
        x = of_dtype(call, "x", FLOATS)
        given = call.optional_tensor("epsilon")
        epsilon = torch.tensor(default) if given is None else given.reshape(()).float()
        zero = x == 0
        if 0 < abs(float(epsilon)) < torch.finfo(torch.float32).tiny and bool(zero.any()):
            call.refuse(f"zero with an epsilon of {float(epsilon):.1e}, which is subnormal")
        found = rounded(x, lambda wide: function(wide + epsilon))
        if x.dtype == torch.float16 and not _same_sum(x, epsilon, function, found):
            call.refuse(f"an epsilon of {float(epsilon):.1e} that float16 does not hold")
        return found

    return operator


def _same_sum(
    x: torch.Tensor,
    epsilon: torch.Tensor,
    function: Callable[[torch.Tensor], torch.Tensor],
    found: torch.Tensor,
) -> bool:
    """Whether adding epsilon in float16 gives what adding it in float32 does.

    The tolerances are two and four units of float16's last place: rounding alone is no difference.
    """
    wide, narrow = x.float() + epsilon, (x + epsilon.half()).float()
    sums = torch.isclose(wide, narrow, rtol=2**-9, atol=0, equal_nan=True)
    other = rounded(narrow, function).half().float()
    results = torch.isclose(found.float(), other, rtol=2**-8, atol=0, equal_nan=True)
    return bool((sums | results).all())


def _logical_not(call: Call) -> torch.Tensor:
    return ~of_dtype(call, "x", (torch.bool,))


def _cast(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    wanted = call.text("dtype", choices=_CASTS_IOS17 if call.opset >= _IOS17 else _CASTS)
    dtype = _HELD[wanted]
    if wanted not in _RANGES or x.dtype == torch.bool:
        return x.to(dtype)
    whole = x
    if not x.is_floating_point():
        whole = x.long()  # an int8 tensor compared with a bound of int32 would wrap the bound
    else:
        if not bool(torch.isfinite(x).all()):
            call.refuse(f"NaN or infinity as {wanted}")
        # Every documented float fits float64, and so does every bound below.
        whole = x.double().trunc()
    low, high = _RANGES[wanted]
    if bool(((whole < low) | (whole > high)).any()):
        call.refuse(f"a value outside {wanted}")
    return whole.to(dtype)


OPERATORS: dict[str, Operator] = {
    **{
        name: _of_float(getattr(torch, name))
        for name in ("acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor")
    },
    **{name: _of_float(getattr(torch, name)) for name in ("sin", "sinh", "sqrt", "tan", "tanh")},
    "abs": _abs,
    "cast": _cast,
    "clip": _clip,
    "exp2": _exp2,
    "identity": lambda call: call.value("x"),
    "inverse": _with_epsilon(1e-4, torch.reciprocal),
    "log": _with_epsilon(1e-45, torch.log),
    "logical_not": _logical_not,
    "round": _round,
    "rsqrt": _with_epsilon(1e-12, lambda wide: wide.sqrt().reciprocal()),
    "sign": _sign,
    "square": _square,
    "threshold": _threshold,
}
