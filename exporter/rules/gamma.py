"""The gamma function's logarithm and its derivatives in float32."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .elementary import rounded_halves_to_even
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
    polynomial,
    quotient,
)
from .traced import NotRewritten

__all__ = ["GAMMA_RULES", "lgamma", "log_of_gamma_1p"]

aten = torch.ops.aten

# log gamma(2 + z) / z where |z| <= 0.5, and log gamma(1 + z) / z where |z| <= 0.25; Cephes,
# gammaf.c.
_LGAMMA_2 = (
    *(6.055172732649237e-4, -1.311620815545743e-3, 2.863437556468661e-3, -7.366775108654962e-3),
    *(2.058355474821512e-2, -6.735323259371034e-2, 3.224669577325661e-1, 4.227843421859038e-1),
)
_LGAMMA_1 = (
    *(1.369488127325832e-1, -1.590086327657347e-1, 1.692415923504637e-1, -2.067882815621965e-1),
    *(2.705806208275915e-1, -4.006931650563372e-1, 8.224670749082976e-1, -5.772156501719101e-1),
)
# Stirling's series in 1 / x^2 after the factor 1 / x: B_2k / (2k (2k - 1)), Abramowitz and Stegun
# 6.1.41.
_STIRLING = (-1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12)
# digamma(1 + z) = (1 + z - root) (Y + P(z) / Q(z)) where 0 <= z <= 1, the root in two parts;
# Boost.Math, special_functions/digamma.hpp, 24 bits.
_DIGAMMA_P = (
    -0.61041765350579073e-1,
    -0.43916936919946835,
    -0.44981331915268368,
    0.25479851023250261,
)
_DIGAMMA_Q = (0.63851690523355715e-1, 0.65341249856146947, 1.5890202430554952, 1.0)
_DIGAMMA_Y = 0.99558162689208984
_DIGAMMA_ROOT = (1532632.0 / 1048576.0, 3.700660185912626595e-7)
# B_2k / 2k, highest k first: Abramowitz and Stegun 6.3.18.
_DIGAMMA_FAR = (1.0 / 252, -1.0 / 120, 1.0 / 12)
# B_2k for k = 1, 2, ...: Abramowitz and Stegun, table 23.2.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def _stirling_rest(x: Tensor) -> Tensor:
    """What Stirling's formula lacks of log gamma(x), for x >= 3."""
    inverse = divided(1.0, x)
    return inverse * polynomial(inverse * inverse, _STIRLING)


def log_of_gamma_1p(z: Tensor) -> Tensor:
    """log gamma(1 + z) for -0.25 <= z <= 3, with the digits of a small z."""
    near = z <= 0.25
    small = choose(near, z, 0.0)
    far = _positive(choose(near, 1.0, z + 1.0))
    return choose(near, small * polynomial(small, _LGAMMA_1), far)


def _positive(x: Tensor) -> Tensor:
    """log gamma(x) for x >= 0: Cephes' polynomials at 1 and 2, one step up or down, Stirling."""
    shifted_up = x < 0.75
    twice = torch.logical_and(x >= 0.25, x < 0.5)
    at_one = torch.logical_or(x < 0.25, torch.logical_and(x >= 0.75, x <= 1.25))
    z1 = choose(at_one, choose(shifted_up, x, x - 1.0), 0.0)
    # Where log gamma(2 + z) serves, z is x (two steps up), or x minus 1 (one), 2 or 3.
    steps = choose(twice, 0.0, choose(x < 1.5, 1.0, choose(x <= 2.5, 2.0, 3.0)))
    at_two = torch.logical_and(torch.logical_not(at_one), x < 3.5)
    z2 = choose(at_two, x - steps, 0.0)
    value = z1 * polynomial(z1, _LGAMMA_1) + z2 * polynomial(z2, _LGAMMA_2)
    below = torch.logical_or(shifted_up, torch.logical_and(x > 1.25, x < 1.5))
    above = torch.logical_and(x > 2.5, x < 3.5)
    factor = choose(twice, x * (x + 1.0), choose(below, x, choose(above, x - 1.0, 1.0)))
    step = log(factor)
    near = choose(above, value + step, value - step)
    big = choose(x < 3.5, 4.0, x)
    far = (big - 0.5) * (torch.log(big) - 1.0) + (_stirling_rest(big) + _HALF_LOG_2PI_LESS_HALF)
    return choose(x < 3.5, near, far)


_HALF_LOG_2PI_LESS_HALF = 0.5 * math.log(2.0 * math.pi) - 0.5


def _distance(x: Tensor) -> Tensor:
    """How far `x` is from the nearest integer, with its sign."""
    return x - rounded_halves_to_even(x)


def lgamma(x: Tensor) -> Tensor:
    """log |gamma(x)|, within 1e-6 relative for x > 0, 1e-6 of max(1, |value|) below."""
    negative = x < 0
    finite = x.abs() < INF
    t = choose(finite, x, 1.0)
    core = _positive(choose(negative, 1.0 - t, t))
    sine = torch.sin(_distance(t).abs() * math.pi)
    pole = torch.logical_and(negative, sine == 0)
    reflected = _LOG_PI - torch.log(choose(torch.logical_and(negative, sine > 0), sine, 1.0)) - core
    found = choose(pole, INF, choose(negative, reflected, core))
    return choose(is_nan(x), x, choose(finite, found, INF))


_LOG_PI = math.log(math.pi)


def _mvlgamma(x: Tensor, p: int) -> Tensor:
    """The sum of `p` of them, plus p (p - 1) / 4 log pi."""
    found = lgamma(x)
    for index in range(1, p):
        found = found + lgamma(x - index * 0.5)
    return found + p * (p - 1) / 4.0 * _LOG_PI


def _digamma(x: Tensor) -> Tensor:
    """Within 1e-6 of max(1, |value|), at its positive root too; NaN at negative integers."""
    negative = x < 0
    t = choose(negative, 1.0 - x, x)
    # Below 3, one step brings it to [1, 2]; up to 8, five steps up bring it beyond.
    low, high = t < 1.0, t >= 2.0
    z = choose(t < 3.0, choose(low, t, choose(high, t - 2.0, t - 1.0)), 0.5)
    root = z + (1.0 - _DIGAMMA_ROOT[0]) - _DIGAMMA_ROOT[1]
    near = root * (quotient(z, _DIGAMMA_P, _DIGAMMA_Q) + _DIGAMMA_Y)
    step = divided(1.0, choose(low, t, choose(high, t - 1.0, 1.0)))
    near = choose(low, near - step, choose(high, near + step, near))
    middle = t < 8.0
    start = choose(t < 3.0, 3.0, t)
    y = choose(middle, start + 5.0, start)
    inverse = divided(1.0, y)
    square = inverse * inverse
    far = torch.log(y) - inverse * 0.5 - square * polynomial(square, _DIGAMMA_FAR)
    sums = divided(1.0, start)
    for index in range(1, 5):
        sums = sums + divided(1.0, start + float(index))
    far = choose(middle, far - sums, far)
    found = choose(t < 3.0, near, choose(t == INF, INF, far))
    d = _distance(choose(negative, x, 0.25))
    pole = torch.logical_and(negative, d == 0)
    away = choose(pole, 0.25, d)
    reflected = found - _cosine(away) / torch.sin(away * math.pi) * math.pi
    found = choose(negative, choose(pole, NAN, reflected), found)
    return choose(x == 0, choose(has_sign(x), INF, -INF), found)


def _cosine(d: Tensor) -> Tensor:
    """cos(pi d) for |d| <= 0.5, with the digits that it has near 0.5."""
    return torch.sin((0.5 - d.abs()) * math.pi)


def _derivative_of_cotangent(n: int, d: Tensor) -> Tensor:
    """The n-th derivative of pi cot(pi x), n >= 1, at a distance d from an integer.

    It is pi^(n+1) P_n(cot), where P_0(c) = c and P_n = -(1 + c^2) P_(n-1)'.
    """
    inner, whole = [0, 1], [0, 1]  # coefficients, the lowest power first
    for _ in range(n):
        inner = [-k * number for k, number in enumerate(whole)][1:]
        whole = [a + b for a, b in zip([*inner, 0, 0], [0, 0, *inner], strict=True)]
    sine, cosine = torch.sin(d * math.pi), _cosine(d)
    cot = cosine / sine
    # Only even powers are left, or only odd ones: Horner's rule in the square.
    odd = (len(inner) - 1) % 2
    scaled = [number * math.pi ** (n + 1) for number in inner[odd::2]]
    found = polynomial(cot * cot, scaled[::-1]) if len(scaled) > 1 else as_tensor(scaled[0], cot)
    return found * (cot if odd else 1.0) / (sine * sine)


_STEPS = 8
_HIGHEST = 8  # the accuracy was measured up to here


def _polygamma(n: int, x: Tensor) -> Tensor:
    """n >= 1: steps up, then the asymptotic series; Abramowitz and Stegun 6.4.6 to 6.4.11.

    Within 1e-6 relative for x > 0, of max(1, |value|) below; infinite at every pole.
    """
    negative = x < 0.5
    sign = 1.0 if n % 2 else -1.0
    t = choose(negative, 1.0 - x, x)
    inverse = divided(1.0, t + float(_STEPS))
    terms = [
        number * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        for k, number in enumerate(_BERNOULLI, 1)
    ]
    tail = polynomial(inverse * inverse, terms[::-1]) * inverse * inverse
    tail = tail + inverse * (math.factorial(n) / 2.0) + float(math.factorial(n - 1))
    total = _times_power(tail, inverse, n)
    for index in reversed(range(_STEPS)):
        term = as_tensor(float(math.factorial(n)), t)
        total = total + _times_power(term, divided(1.0, t + float(index)), n + 1)
    d = _distance(choose(negative, x, 0.25))
    pole = torch.logical_and(negative, d == 0)
    slope = _derivative_of_cotangent(n, choose(pole, 0.25, d))
    # (-1)^n psi_n(1 - x) - psi_n(x) is that derivative, and psi_n(1 - x) is `sign` times `total`.
    reflected = -total - slope
    return choose(negative, choose(pole, sign * INF, reflected), total * sign)


def _times_power(found: Tensor, x: Tensor, n: int) -> Tensor:
    """`found` times x^n; the power alone might underflow."""
    for _ in range(n):
        found = found * x
    return found


def _any_polygamma(n: int, x: Tensor) -> Tensor:
    if n > _HIGHEST:
        raise NotRewritten
    return _digamma(x) if n == 0 else _polygamma(n, x)


_ZETA_STEPS = 16


def _zeta(s: Any, q: Any) -> Tensor:
    """Hurwitz' zeta by Euler and Maclaurin (Cephes, zeta.c, with a fixed number of steps).

    s > 1 and q > -13; a negative q wants an integer s. NaN beyond, and below s = 1.
    """
    s, q = as_tensor(s, q), as_tensor(q, s)
    whole = torch.floor(s) == s
    pole = torch.logical_and(q <= 0, torch.floor(q) == q)
    outside = torch.logical_not(torch.logical_and(s >= 1.0, q > -13.0))
    outside = torch.logical_or(outside, torch.logical_and(q < 0, torch.logical_not(whole)))
    usual = torch.logical_not(torch.logical_or(outside, torch.logical_or(pole, s == 1.0)))
    p, start = choose(usual, s, 2.0), choose(usual, q, 1.0)
    odd = torch.floor(p * 0.5) * 2.0 != p
    total: Any = 0.0
    for index in reversed(range(_ZETA_STEPS)):
        base = start + float(index)
        size = torch.pow(base.abs(), -p)
        total = choose(torch.logical_and(base < 0, odd), -size, size) + total
    a = start + float(_ZETA_STEPS)
    last = torch.pow(a, -p)
    inverse = divided(1.0, a)
    # Beyond s = 300 the rest is nothing; its products must not overflow.
    factor = choose(p > 300.0, 300.0, p)
    rest: Any = 0.5
    product = factor * inverse
    for k, number in enumerate(_BERNOULLI, 1):
        rest = rest + product * (number / math.factorial(2 * k))
        product = product * ((factor + (2.0 * k - 1.0)) * inverse) * ((factor + 2.0 * k) * inverse)
    found = total + (torch.pow(a, 1.0 - p) / (p - 1.0) + last * rest)
    edge = choose(torch.logical_or(pole, s == 1.0), choose(s >= 1.0, INF, NAN), NAN)
    return choose(usual, found, edge)


GAMMA_RULES: dict[Any, Any] = {
    aten.lgamma.default: formula(lgamma),
    aten.special_gammaln.default: formula(lgamma),
    aten.mvlgamma.default: formula(_mvlgamma),
    aten.special_multigammaln.default: formula(_mvlgamma),
    aten.digamma.default: formula(_digamma),
    aten.special_digamma.default: formula(_digamma),
    aten.special_psi.default: formula(_digamma),
    aten.polygamma.default: formula(_any_polygamma),
    aten.special_polygamma.default: formula(_any_polygamma),
    aten.special_zeta.default: formula(_zeta),
    aten.special_zeta.self_scalar: formula(_zeta),
    aten.special_zeta.other_scalar: formula(_zeta),
}
