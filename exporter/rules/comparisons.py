"""Signs, remainders, roundings and the like in float32: exact wherever torch is."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..nodes import Editor, argument, tensor_value
from .elementary import rounded_halves_to_even
from .formulas import INF, NAN, as_tensor, choose, divided, formula, has_sign, is_nan
from .traced import traced

__all__ = ["COMPARISON_RULES"]

aten = torch.ops.aten


def _sign(x: Tensor) -> Tensor:
    """Zero for a NaN, as in torch."""
    return choose(x > 0, 1.0, choose(x < 0, -1.0, 0.0))


def _angle(x: Tensor) -> Tensor:
    return choose(x < 0, math.pi, choose(x >= 0, 0.0, NAN))


def _copysign(x: Tensor, y: Tensor | float) -> Tensor:
    return choose(has_sign(as_tensor(y, x)), -x.abs(), x.abs())


def _heaviside(x: Tensor, values: Tensor) -> Tensor:
    return choose(x == 0, values, choose(x > 0, 1.0, 0.0))


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    """The larger; of a number and a NaN the number."""
    return choose(torch.logical_or(is_nan(y), x >= y), x, y)


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return choose(torch.logical_or(is_nan(y), x <= y), x, y)


def _remainder_of_sizes(a: Tensor, b: Tensor) -> Tensor:
    """What is left of a >= 0 divided by b > 0: exact, but NaN from a quotient of 2^48 on."""
    scale = choose(b < 1e-25, 2.0**60, choose(b > 1e20, 2.0**-60, 1.0))
    rest, part = a * scale, b * scale
    out_of_reach = rest / part >= 2.0**48
    for bits in (36, 24, 12, 0):
        step = part * 2.0**bits
        # The quotient has 12 bits here and so has each half of the divisor (Dekker 1971, splitting
        # by 2^12 + 1): both products are exact, and the quotient may be one off.
        count = torch.floor(rest / step)
        wide = step * 4097.0
        high = wide - (wide - step)
        left = (rest - count * high) - count * (step - high)
        left = choose(left < 0, left + step, left)
        rest = choose(left >= step, left - step, left)
    return choose(out_of_reach, NAN, choose(a < b, a, rest / scale))


def _fmod(x: Any, y: Any) -> Tensor:
    """With the sign of x; NaN where x is infinite or y is zero."""
    x, y = as_tensor(x, y), as_tensor(y, x)
    a, b = x.abs(), y.abs()
    usual = torch.logical_and(torch.logical_and(a < INF, b < INF), b > 0)
    found = _remainder_of_sizes(choose(usual, a, 1.0), choose(usual, b, 1.0))
    whole = torch.logical_and(b == INF, a < INF)
    found = choose(usual, found, choose(whole, a, NAN))
    return choose(has_sign(x), -found, found)


def _remainder(x: Any, y: Any) -> Tensor:
    """With the sign of y."""
    x, y = as_tensor(x, y), as_tensor(y, x)
    found = _fmod(x, y)
    other = torch.logical_xor(found < 0, y < 0)
    return choose(torch.logical_and(found != 0, other), found + y, found)


def _integers(node: Node) -> bool:
    value = tensor_value(node)
    return value is not None and not value.is_floating_point() and not value.is_complex()


def _fmod_rule(editor: Editor, node: Node) -> Any:
    if _integers(node):
        return traced(_fmod_of_integers)(editor, node)
    return formula(_fmod)(editor, node)


def _fmod_of_integers(x: Tensor, y: Any) -> Tensor:
    """The remainder of the other sign, where it is, is moved by y."""
    found = torch.remainder(x, y)
    other = torch.logical_and(found != 0, torch.logical_xor(found < 0, x < 0))
    return torch.where(other, found - y, found)


def _of_integers(maximum: Any, function: Any) -> Any:
    floats = formula(function)

    def rule(editor: Editor, node: Node) -> Any:
        if _integers(node):
            return editor.call(node, maximum, *node.args, value=node.meta["val"])
        return floats(editor, node)

    return rule


def _round(x: Tensor, decimals: int) -> Tensor:
    scale = 10.0 ** abs(decimals)
    if decimals >= 0:
        return rounded_halves_to_even(x * scale) / scale
    return rounded_halves_to_even(x / scale) * scale


def _nan_to_num(editor: Editor, node: Node) -> Any:
    value = tensor_value(node)
    if value is None or not value.is_floating_point():
        return None
    top = torch.finfo(value.dtype).max
    given = [argument(node, name) for name in ("nan", "posinf", "neginf")]
    nan, high, low = (
        default if number is None else float(number)
        for number, default in zip(given, (0.0, top, -top), strict=True)
    )

    def function(x: Tensor, *_: Any) -> Tensor:
        return choose(is_nan(x), nan, choose(x == INF, high, choose(x == -INF, low, x)))

    return formula(function)(editor, node)


_STEPS_DOWN = (64, 32, 16, 8, 4, 2, 1)


def _frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa and exponent by exact multiplications with powers of two, largest first."""
    a = x.abs()
    usual = torch.logical_and(a > 0, a < INF)
    a = choose(usual, a, 0.5)
    exponent: Tensor = a * 0.0
    for count in _STEPS_DOWN:
        big = a >= 2.0**count
        a, exponent = choose(big, a * 2.0**-count, a), choose(big, exponent + count, exponent)
    big = a >= 1.0
    a, exponent = choose(big, a * 0.5, a), choose(big, exponent + 1.0, exponent)
    for count in (64, *_STEPS_DOWN):
        small = a < 2.0**-count
        a, exponent = choose(small, a * 2.0**count, a), choose(small, exponent - count, exponent)
    return choose(usual, choose(x < 0, -a, a), x), exponent


def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x 2^n as torch computes it: the power is rounded to float32 first."""
    return x * torch.exp2(exponent)


# Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding to
# nearest", BIT 49 (2009): x + phi |x| rounds to the next number, phi = u (1 + 2u) and u = 2^-24.
_PHI = 2.0**-24 * (1.0 + 2.0**-23)
_SMALLEST = 2.0**-149


def _nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The next float32, for x of float32; subnormals by adding the smallest."""
    a = x.abs()
    tiny, low = a < 2.0**-125, a < 2.0**-90
    scale = choose(low, 2.0**60, 1.0)
    b = choose(tiny, 1.0, choose(a == INF, 1.0, a)) * scale
    step = b * _PHI
    outward = choose(tiny, a + _SMALLEST, (b + step) / scale)
    inward = choose(tiny, a - _SMALLEST, (b - step) / scale)
    inward = choose(a == INF, torch.finfo(torch.float32).max, inward)
    upward = y > x
    away = torch.logical_or(x == 0, torch.logical_xor(upward, x < 0))
    size = choose(away, outward, inward)
    negative = torch.logical_or(x < 0, torch.logical_and(x == 0, torch.logical_not(upward)))
    moved = choose(negative, -size, size)
    found = choose(x == y, y, moved)
    return choose(torch.logical_or(is_nan(x), is_nan(y)), NAN, found)


def _nextafter_rule(editor: Editor, node: Node) -> Any:
    value = tensor_value(node)
    if value is None or value.dtype != torch.float32:
        return None
    return formula(_nextafter)(editor, node)


COMPARISON_RULES: dict[Any, Any] = {
    aten.sign.default: formula(_sign),
    aten.sgn.default: formula(_sign),
    aten.angle.default: formula(_angle),
    aten.copysign.Tensor: formula(_copysign),
    aten.copysign.Scalar: formula(_copysign),
    aten.heaviside.default: formula(_heaviside),
    aten.fmax.default: _of_integers(aten.maximum.default, _fmax),
    aten.fmin.default: _of_integers(aten.minimum.default, _fmin),
    aten.fmod.Tensor: _fmod_rule,
    aten.fmod.Scalar: _fmod_rule,
    aten.remainder.Tensor: formula(_remainder),
    aten.remainder.Scalar: formula(_remainder),
    aten.remainder.Scalar_Tensor: formula(_remainder),
    aten.round.default: formula(rounded_halves_to_even),
    aten.round.decimals: formula(_round),
    aten.nan_to_num.default: _nan_to_num,
    aten.isnan.default: formula(is_nan),
    aten.isinf.default: formula(lambda x: x.abs() == INF),
    aten.isfinite.default: formula(lambda x: x.abs() < INF),
    aten.isposinf.default: formula(lambda x: x == INF),
    aten.isneginf.default: formula(lambda x: x == -INF),
    aten.signbit.default: formula(has_sign),
    aten.frexp.Tensor: formula(_frexp),
    aten.ldexp.Tensor: formula(_ldexp),
    aten.nextafter.default: _nextafter_rule,
    aten.reciprocal.default: formula(lambda x: divided(1.0, x)),
    aten.rsqrt.default: formula(lambda x: divided(1.0, torch.sqrt(x))),
}
