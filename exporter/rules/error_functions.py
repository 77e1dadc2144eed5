"""The error function's complements and inverses in float32."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .elementary import log1p
from .formulas import INF, NAN, choose, divided, formula, polynomial, quotient

__all__ = ["ERROR_RULES", "erfc"]

aten = torch.ops.aten

# (1 + 2x) exp(x^2) erfc(x) for x >= 0 as a polynomial in q = (x - 3.75) / (x + 3.75), the form of
# Shepherd and Laframboise, Mathematics of Computation 36 (1981) 249. The coefficients are those of
# its Chebyshev series up to T_12, computed with mpmath at 40 digits; the rest is below 2e-8.
_SCALED_ERFC = (
    *(2.2046718906e-5, -2.2411674674e-4, 3.3016745627e-4, 1.675912218e-3, -9.7700871834e-3),
    *(2.8409252364e-2, -5.8685440494e-2, 9.2290769591e-2, -1.0880522755e-1, 8.2278419983e-2),
    *(3.5854953141e-3, -1.4024065832e-1, 1.23751263),
)
# M. Giles, "Approximating the erfinv function", GPU Computing Gems Jade Edition (2011), table 5.
_ERFINV_CENTRE = (
    *(2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 2.1858087e-4),
    *(-1.25372503e-3, -4.17768164e-3, 2.46640727e-1, 1.50140941),
)
_ERFINV_TAIL = (
    *(-2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3, 5.73950773e-3),
    *(-7.6224613e-3, 9.43887047e-3, 1.00167406, 2.83297682),
)
# The normal quantile; Cephes, ndtri.c: |y - 0.5| <= 3/8, then z = sqrt(-2 log y) to 8 and beyond.
_NDTRI_P0 = (
    *(-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1),
    *(1.39312609387279679503e1, -1.23916583867381258016),
)
_NDTRI_Q0 = (
    *(1.0, 1.95448858338141759834, 4.67627912898881538453, 8.63602421390890590575e1),
    *(-2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1),
    *(1.59056225126211695515e1, -1.18331621121330003142),
)
_NDTRI_P1 = (
    *(4.05544892305962419923, 3.15251094599893866154e1, 5.71628192246421288162e1),
    *(4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539),
    *(-1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4),
)
_NDTRI_Q1 = (
    *(1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1),
    *(1.50425385692907503408e1, 2.50464946208309415979, -1.42182922854787788574e-1),
    *(-3.80806407691578277194e-2, -9.33259480895457427372e-4),
)
_NDTRI_P2 = (
    *(3.23774891776946035970, 6.91522889068984211695, 3.93881025292474443415),
    *(1.33303460815807542389, 2.01485389549179081538e-1, 1.23716634817820021358e-2),
    *(3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9),
)
_NDTRI_Q2 = (
    *(1.0, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271),
    *(2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4),
    *(2.89247864745380683936e-6, 6.79019408009981274425e-9),
)
_EXP_MINUS_2 = 0.13533528323661269189
_SQRT_2PI = 2.50662827463100050242
_SQRT_HALF = math.sqrt(0.5)


def _scaled(a: Tensor) -> Tensor:
    """exp(a^2) erfc(a) for a >= 0."""
    q = 1.0 - divided(7.5, a + 3.75)
    return polynomial(q, _SCALED_ERFC) / (a * 2.0 + 1.0)


def _square_parts(a: Tensor) -> tuple[Tensor, Tensor]:
    """a^2 for a >= 0 as an exact square and a small rest, since exp magnifies what is lost."""
    high = torch.floor(a * 16.0) * 0.0625
    return high * high, (a - high) * (a + high)


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), within 1e-6 relative down to the smallest normal float32."""
    a = x.abs()
    a = choose(a > 11.0, 11.0, a)  # erfc(11) is below every float32
    high, low = _square_parts(a)
    found = torch.exp(-high) * torch.exp(-low) * _scaled(a)
    return choose(x < 0, 2.0 - found, found)


def _erfcx(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x): from -9.4, where it overflows, to the largest float32."""
    a = x.abs()
    high, low = _square_parts(choose(x < 0, choose(a > 11.0, 11.0, a), 0.0))
    grown = torch.exp(high) * torch.exp(low)
    return choose(x < 0, grown * 2.0 - _scaled(a), _scaled(a))


def _upper_tail(a: Tensor) -> Tensor:
    """The normal probability beyond a >= 0; x / sqrt(2) in `erfc` would be rounded first."""
    a = choose(a > 15.0, 15.0, a)
    high, low = _square_parts(a)
    return torch.exp(high * -0.5) * torch.exp(low * -0.5) * _scaled(a * _SQRT_HALF) * 0.5


def _ndtr(x: Tensor) -> Tensor:
    found = _upper_tail(x.abs())
    return choose(x > 0, 1.0 - found, found)


def _log_ndtr(x: Tensor) -> Tensor:
    left = x < -1.0
    far = choose(left, -x, 1.0)
    tail = torch.log(_scaled(far * _SQRT_HALF) * 0.5) - far * far * 0.5
    return choose(left, tail, log1p(-_ndtr(choose(left, 0.0, -x))))


def _erfinv(x: Tensor) -> Tensor:
    """Within 5e-7 relative; infinite at 1 and -1, NaN beyond."""
    edge = x.abs() == 1.0
    t = choose(edge, 0.0, x)
    w = -torch.log((1.0 - t) * (t + 1.0))
    near = w < 5.0
    centre = polynomial(choose(near, w, 2.5) - 2.5, _ERFINV_CENTRE)
    tail = polynomial(torch.sqrt(choose(near, 9.0, w)) - 3.0, _ERFINV_TAIL)
    return choose(edge, x * INF, t * choose(near, centre, tail))


def _ndtri(p: Tensor) -> Tensor:
    """The standard normal quantile, by Cephes' three ranges."""
    upper = p > 1.0 - _EXP_MINUS_2
    y = choose(upper, 1.0 - p, p)
    middle = y > _EXP_MINUS_2
    inside = torch.logical_and(p > 0.0, p < 1.0)
    c = choose(middle, y, 0.5) - 0.5
    square = c * c
    centre = (c + c * (square * quotient(square, _NDTRI_P0, _NDTRI_Q0))) * _SQRT_2PI
    outer = choose(torch.logical_and(inside, torch.logical_not(middle)), y, 0.1)
    r = torch.sqrt(torch.log(outer) * -2.0)
    z = divided(1.0, r)
    far = choose(r < 8.0, quotient(z, _NDTRI_P1, _NDTRI_Q1), quotient(z, _NDTRI_P2, _NDTRI_Q2))
    tail = r - torch.log(r) / r - z * far
    found = choose(middle, centre, choose(upper, tail, -tail))
    edges = choose(p == 0.0, -INF, choose(p == 1.0, INF, NAN))
    return choose(inside, found, edges)


ERROR_RULES: dict[Any, Any] = {
    aten.erfc.default: formula(erfc),
    aten.special_erfc.default: formula(erfc),
    aten.special_erfcx.default: formula(_erfcx),
    aten.erfinv.default: formula(_erfinv),
    aten.special_erfinv.default: formula(_erfinv),
    aten.special_ndtr.default: formula(_ndtr),
    aten.special_log_ndtr.default: formula(_log_ndtr),
    aten.special_ndtri.default: formula(_ndtri),
}
