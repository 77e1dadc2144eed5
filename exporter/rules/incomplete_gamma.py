"""The regularised incomplete gamma functions in float32.

As in Cephes' igam.c (Temme; DLMF 8.7, 8.9 and 8.12), with every series of a fixed length: a power
series where x is small beside a, a continued fraction where it is large, Temme's uniform expansion
for a >= 10 between them, and a series of its own for the upper function where both are small.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .elementary import expm1
from .error_functions import erfc
from .formulas import INF, NAN, choose, divided, formula, polynomial
from .gamma import log_of_gamma_1p

__all__ = ["INCOMPLETE_GAMMA_RULES"]

aten = torch.ops.aten

# Coefficients in eta, the highest power first, of Temme's expansion in 1 / a (DLMF 8.12.7; Cephes,
# igam.h). What is cut off is below 2e-8 where a >= 10 and |eta| < 1.2.
_TEMME: tuple[tuple[float, ...], ...] = (
    (
        *(9.1476995822e-10, -4.3820360185e-9, 1.0261809784e-8, 6.7078535434e-9, -1.7665952737e-7),
        *(8.296711341e-7, -1.8540622107e-6, -2.1854485107e-6, 3.9192631785e-5, -1.7875514403e-4),
        *(3.5273368607e-4, 1.1574074074e-3, -1.4814814815e-2, 8.3333333333e-2, -3.3333333333e-1),
    ),
    (
        *(-5.7525456035e-8, 1.3786334469e-7, 4.6471278028e-9, -1.6120900895e-6, 7.6491609161e-6),
        *(-1.8098550334e-5, -4.0187757202e-7, 2.0576131687e-4, -9.9022633745e-4, 2.6455026455e-3),
        *(-3.4722222222e-3, -1.8518518519e-3),
    ),
    (
        *(1.3721957309e-6, 3.4235787341e-8, -1.2760635189e-5, 5.2923448829e-5, -1.0736653226e-4),
        *(2.0093878601e-6, 7.7160493827e-4, -2.6813271605e-3, 4.1335978836e-3),
    ),
    (
        *(-2.3965051139e-7, -7.5618016719e-5, 2.6772063206e-4, -4.691894944e-4, 2.2947209362e-4),
        6.4943415638e-4,
    ),
    (-1.4638452579e-6, -2.990724803e-4, 7.8403922172e-4, -8.6188829092e-4),
)
_POWER_TERMS, _FRACTION_TERMS, _SMALL_TERMS = 36, 24, 11
# (x - log(1 + x)) / x^2 for |x| <= 0.3: the Taylor series of the logarithm.
_LOG_GAP = tuple((-1.0) ** n / n for n in range(16, 1, -1))


def _log_gap(mu: Tensor, ratio: Tensor) -> Tensor:
    """mu - log(ratio), ratio being 1 + mu, but not rounded as mu is near -1."""
    near = mu.abs() <= 0.3
    small = choose(near, mu, 0.0)
    return choose(near, small * small * polynomial(small, _LOG_GAP), mu - torch.log(ratio))


def _both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function for finite positive `a` and `x`."""
    mu = (x - a) / a
    gap = _log_gap(mu, choose(x > a * 1e-37, x / a, 1e-37))
    large = a >= 10.0
    between = torch.logical_and(large, gap < 0.72)  # eta^2 / 2
    factor = _factor(a, x, gap)
    # Where a series is not used it gets arguments for which it is finite.
    series_side = x <= choose(a < 1.0, 1.0, a)
    b, y = choose(series_side, a, 1.0), choose(series_side, x, 0.5)
    power: Tensor = y / (b + float(_POWER_TERMS)) + 1.0
    for k in reversed(range(1, _POWER_TERMS)):
        power = power * (y / (b + float(k))) + 1.0
    low = factor * power
    high = factor * a * _fraction(choose(series_side, 1.0, a), choose(series_side, 4.0, x))
    upper_small = torch.logical_and(x <= 1.1, _both_small(a, x))
    tiny = _upper_where_small(choose(upper_small, a, 0.5), choose(upper_small, x, 0.5))
    upper = choose(upper_small, tiny, choose(series_side, 1.0 - low, high))
    lower = choose(series_side, low, 1.0 - upper)
    below, above = _temme(choose(large, a, 10.0), choose(between, gap, 0.0), mu < 0)
    return choose(between, below, lower), choose(between, above, upper)


def _both_small(a: Tensor, x: Tensor) -> Tensor:
    """Where 1 - P would lose the digits of Q (Cephes, igam.c)."""
    t = choose(x < 0.5, x, 0.5)
    return choose(x <= 0.5, a * torch.log(choose(t > 0, t, 0.5)) > -0.4, x * 1.1 >= a)


def _factor(a: Tensor, x: Tensor, gap: Tensor) -> Tensor:
    """x^a exp(-x) / gamma(a + 1)."""
    small = a < 3.0
    c = choose(small, a, 1.0)
    y = choose(x > 150.0, 150.0, x)  # nothing is left there, and no infinity must meet it
    plain = torch.exp(c * torch.log(y) - log_of_gamma_1p(c)) * torch.exp(-y)
    d = choose(small, 3.0, a)
    inverse = divided(1.0, d)
    stirling = polynomial(inverse * inverse, (-1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12))
    scaled = torch.exp(-(d * gap)) * torch.exp(-(stirling * inverse))
    return choose(small, plain, scaled / torch.sqrt(d * (2.0 * math.pi)))


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of x^-a exp(x) gamma(a, x), from its end (DLMF 8.9.2, even part)."""
    start = x - a + 1.0
    found: Tensor = start + 2.0 * _FRACTION_TERMS
    for k in reversed(range(1, _FRACTION_TERMS + 1)):
        found = (start + 2.0 * (k - 1)) + (a - float(k)) * float(k) / found
    return divided(1.0, found)


def _upper_where_small(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x) for x <= 1.1: 1 - x^a / gamma(a + 1) and the rest of P (DLMF 8.7.1)."""
    exponent = a * torch.log(x) - log_of_gamma_1p(a)
    total: Any = 0.0
    for n in reversed(range(1, _SMALL_TERMS + 1)):  # Horner's rule, since powers are dear
        total = (total + divided((-1.0) ** n / math.factorial(n), a + float(n))) * x
    rest: Tensor = torch.exp(exponent) * a * total
    return -expm1(exponent) - rest


def _temme(a: Tensor, gap: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """DLMF 8.12.3 and 8.12.4, eta^2 / 2 being `gap`."""
    size = torch.sqrt(gap * 2.0)
    eta = choose(left, -size, size)
    inverse = divided(1.0, a)
    total = polynomial(eta, _TEMME[-1])
    for row in reversed(_TEMME[:-1]):
        total = total * inverse + polynomial(eta, row)
    rest = torch.exp(-(a * gap)) * total / torch.sqrt(a * (2.0 * math.pi))
    outer = erfc(torch.sqrt(a * gap)) * 0.5
    inner = 1.0 - outer
    return choose(left, outer, inner) - rest, choose(left, inner, outer) + rest


def _bounded(a: Tensor, x: Tensor, part: int, at_zero: float) -> Tensor:
    """Either function with its values at the edges: `at_zero` where x is 0."""
    usual = torch.logical_and(torch.logical_and(a > 0, a < INF), torch.logical_and(x > 0, x < INF))
    found = _both(choose(usual, a, 1.0), choose(usual, x, 1.0))[part]
    inside = torch.logical_and(a >= 0, x >= 0)
    far = torch.logical_or(torch.logical_and(a == 0, x > 0), torch.logical_and(x == INF, a < INF))
    near = torch.logical_or(torch.logical_and(x == 0, a > 0), torch.logical_and(a == INF, x < INF))
    edge = choose(far, 1.0 - at_zero, choose(near, at_zero, NAN))
    return choose(usual, found, choose(inside, edge, NAN))


def _igamma(a: Tensor, x: Tensor) -> Tensor:
    return _bounded(a, x, 0, 0.0)


def _igammac(a: Tensor, x: Tensor) -> Tensor:
    return _bounded(a, x, 1, 1.0)


INCOMPLETE_GAMMA_RULES: dict[Any, Any] = {
    aten.igamma.default: formula(_igamma),
    aten.igammac.default: formula(_igammac),
    aten.special_gammainc.default: formula(_igamma),
    aten.special_gammaincc.default: formula(_igammac),
}
