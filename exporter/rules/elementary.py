"""Elementary functions in float32, without the digits that textbook formulas lose."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .formulas import (
    INF,
    NAN,
    as_tensor,
    choose,
    divided,
    formula,
    has_sign,
    is_nan,
    log,
    mirrored,
    polynomial,
)

__all__ = ["ELEMENTARY_RULES", "expm1", "log1p", "rounded_halves_to_even", "sine_of_pi"]

aten = torch.ops.aten

# expm1 on |x| <= 0.5 is 2 x P(x^2) / (Q(x^2) - x P(x^2)); Cephes, unity.c.
_EXPM1_P = (1.2617719307481059e-4, 3.0299440770744196e-2, 1.0)
_EXPM1_Q = (3.0019850513866446e-6, 2.5244834034968410e-3, 2.2726554820815503e-1, 2.0)
# log(1 + x) = x - x^2 / 2 + x^3 P(x) where sqrt(1/2) <= 1 + x <= sqrt(2); Cephes, logf.c.
_LOG1P = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LN2 = math.log(2.0)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, within 3e-7 relative everywhere."""
    near = x.abs() <= 0.5
    small = choose(near, x, 0.0)
    square = small * small
    above = small * polynomial(square, _EXPM1_P)
    ratio = above / (polynomial(square, _EXPM1_Q) - above)
    return choose(x == 0, x, choose(near, ratio + ratio, torch.exp(x) - 1.0))


def log1p(x: Tensor) -> Tensor:
    """log(1 + x), within 3e-7 relative everywhere."""
    near = torch.logical_and(x > -0.29, x < 0.41)
    small = choose(near, x, 0.0)
    square = small * small
    series = small - (square * 0.5 - small * square * polynomial(small, _LOG1P))
    return choose(x == 0, x, choose(near, series, log(x + 1.0)))


def _asinh(x: Tensor) -> Tensor:
    a = x.abs()
    large = a > 1e9
    t = choose(large, 1.0, a)
    found = log1p(t + t * t / (torch.sqrt(t * t + 1.0) + 1.0))
    return mirrored(x, choose(large, torch.log(choose(large, a, 1.0)) + _LN2, found))


def _acosh(x: Tensor) -> Tensor:
    large = x > 1e9
    t = choose(large, 1.0, x) - 1.0
    found = log1p(t + torch.sqrt(t) * torch.sqrt(t + 2.0))
    found = choose(large, torch.log(choose(large, x, 1.0)) + _LN2, found)
    return choose(x < 1.0, NAN, found)


def _atanh(x: Tensor) -> Tensor:
    a = x.abs()
    return mirrored(x, log1p((a + a) / (1.0 - a)) * 0.5)


def _sinh(x: Tensor) -> Tensor:
    a = x.abs()
    near = a < 1.0
    e = expm1(choose(near, a, 0.0))
    half = torch.exp(a * 0.5)  # exp(a) alone would overflow before sinh(a) does
    found = (e + e / (e + 1.0)) * 0.5
    far = half * 0.5 * half - divided(0.5, half * half)
    return mirrored(x, choose(near, found, far))


def rounded_halves_to_even(x: Tensor) -> Tensor:
    """The nearest integer, halves to even, from `floor` alone; a zero keeps its sign."""
    down = torch.floor(x)
    rest = x - down
    odd = torch.floor(down * 0.5) * 2.0 != down
    up = torch.logical_or(rest > 0.5, torch.logical_and(rest == 0.5, odd))
    whole = choose(up, down + 1.0, down)
    return choose(whole == 0, x * 0.0, whole)


def sine_of_pi(x: Tensor) -> Tensor:
    """sin(pi x), exact zeros at the integers, NaN at the infinities."""
    turn = x * 0.5
    r = (turn - torch.floor(turn + 0.5)) * 2.0  # in [-1, 1)
    a = r.abs()
    found = torch.sin(choose(a > 0.5, 1.0 - a, a) * math.pi)
    return choose(r < 0, -found, found)


def _sinc(x: Tensor) -> Tensor:
    away = x.abs() > 1e-4
    t = choose(torch.logical_or(away, is_nan(x)), x, 1.0)
    return choose(x.abs() <= 1e-4, 1.0, sine_of_pi(t) / (t * math.pi))


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.abs(), y.abs()
    swap = a < b
    high, low = choose(swap, b, a), choose(swap, a, b)
    plain = torch.logical_and(high > 0, high < INF)
    ratio = low / choose(plain, high, 1.0)
    found = choose(plain, high * torch.sqrt(ratio * ratio + 1.0), high + low)
    return choose(torch.logical_or(a == INF, b == INF), INF, found)


def _logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """The larger plus log1p of the exponential of the difference; equal infinities stay."""
    high = choose(x < y, y, x)
    same = torch.logical_and(x == y, x.abs() == INF)
    gap = choose(same, 0.0, (x - y).abs())
    return choose(same, x, choose(is_nan(gap), NAN, high + log1p(torch.exp(-gap))))


def _logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    high = choose(x < y, y, x)
    same = torch.logical_and(x == y, x.abs() == INF)
    gap = choose(same, 0.0, (x - y).abs())
    found = high + log1p(torch.exp(gap * -_LN2)) * (1.0 / _LN2)
    return choose(same, x, choose(is_nan(gap), NAN, found))


def _xlogy(x: Any, y: Any) -> Tensor:
    x, y = as_tensor(x, y), as_tensor(y, x)
    return choose(is_nan(y), NAN, choose(x == 0, 0.0, x * log(y)))


def _xlog1py(x: Any, y: Any) -> Tensor:
    x, y = as_tensor(x, y), as_tensor(y, x)
    return choose(is_nan(y), NAN, choose(x == 0, 0.0, x * log1p(y)))


def _entr(x: Tensor) -> Tensor:
    positive = x > 0
    found = -x * torch.log(choose(positive, x, 1.0))
    found = choose(x == INF, -INF, found)
    return choose(positive, found, choose(x == 0, 0.0, choose(x < 0, -INF, x)))


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    """By the arctangent of the smaller over the larger, which is never above 1."""
    tall, wide = y.abs(), x.abs()
    larger, smaller = torch.maximum(tall, wide), torch.minimum(tall, wide)
    ratio = smaller / torch.where(larger == 0, 1.0, larger)
    ratio = torch.where((smaller == larger) & (larger > 0), 1.0, ratio)  # infinities too
    angle = torch.atan(ratio)
    angle = torch.where(tall > wide, math.pi / 2 - angle, angle)
    angle = torch.where(has_sign(x), math.pi - angle, angle)
    return torch.where(has_sign(y), -angle, angle)


ELEMENTARY_RULES: dict[Any, Any] = {
    aten.expm1.default: formula(expm1),
    aten.special_expm1.default: formula(expm1),
    aten.log1p.default: formula(log1p),
    aten.special_log1p.default: formula(log1p),
    aten.asinh.default: formula(_asinh),
    aten.acosh.default: formula(_acosh),
    aten.atanh.default: formula(_atanh),
    aten.sinh.default: formula(_sinh),
    aten.sinc.default: formula(_sinc),
    aten.special_sinc.default: formula(_sinc),
    aten.hypot.default: formula(_hypot),
    aten.atan2.default: formula(_atan2),
    aten.logaddexp.default: formula(_logaddexp),
    aten.logaddexp2.default: formula(_logaddexp2),
    aten.xlogy.Tensor: formula(_xlogy),
    aten.xlogy.Scalar_Self: formula(_xlogy),
    aten.xlogy.Scalar_Other: formula(_xlogy),
    aten.special_xlogy.default: formula(_xlogy),
    aten.special_xlogy.self_scalar: formula(_xlogy),
    aten.special_xlogy.other_scalar: formula(_xlogy),
    aten.special_xlog1py.default: formula(_xlog1py),
    aten.special_xlog1py.self_scalar: formula(_xlog1py),
    aten.special_xlog1py.other_scalar: formula(_xlog1py),
    aten.special_entr.default: formula(_entr),
}
