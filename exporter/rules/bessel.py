"""Bessel functions of the first and second kind, and Airy's, in float32.

The rational functions are those of Cephes (j0.c, j1.c, airy.c), which torch uses as well. Beyond 5
the sine and cosine of x less pi/4 come from those of x, which no subtraction has rounded.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .formulas import INF, NAN, choose, divided, formula, mirrored, polynomial, quotient

__all__ = ["BESSEL_RULES"]

aten = torch.ops.aten

# Modulus and phase in (5 / x)^2, then the functions up to 5 in x^2; highest powers first.
_PP0 = (
    *(0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687),
    *(8.74716500199817, 5.303240382353949, 1.0),
)
_PQ0 = (
    *(0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171),
    *(8.761908832370695, 5.306052882353947, 1.0),
)
_QP0 = (
    *(-0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683),
    *(-177.68116798048806, -147.07750515495118, -51.41053267665993, -6.050143506007285),
)
_QQ0 = (
    *(64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525),
    *(5930.727011873169, 2062.0933166032783, 242.0057402402914),
)
_PP1 = (
    *(0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076),
    *(8.424045901417724, 5.214515986823615, 1.0),
)
_PQ1 = (
    *(0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015),
    *(8.399855543276042, 5.209828486823619, 1.0),
)
_QP1 = (
    *(0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508),
    *(710.8563049989261, 597.4896124006136, 211.68875710057213, 25.207020585802372),
)
_QQ1 = (
    *(74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562),
    *(7997.041604473507, 2826.1927851763908, 336.0936078106983),
)
_J0_P = (*(-4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0),)
_J0_Q = (
    *(1.0, 499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683),
    *(2112775201154.892, 310518229857422.56, 3.1812195594320496e16, 1.7108629408104315e18),
)
_Y0_P = (
    *(15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115),
    *(87590639439536.7, -3466283033847297.0, 4.4273326857256984e16, -1.8495080043698668e16),
)
_Y0_Q = (
    *(1.0, 1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935),
    *(20297961275010.555, 3171577528429750.5, 2.5059625617265306e17),
)
_J1_P = (*(-899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0),)
_J1_Q = (
    *(1.0, 620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925),
    *(4749141220799.914, 784369607876235.9, 8.952223361846274e16, 5.322786203326801e18),
)
_Y1_P = (
    *(1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0),
    *(2.024394757135949e17, -7.788771962659501e17),
)
_Y1_Q = (
    *(1.0, 594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617),
    *(3882312774962.3857, 620557727146953.8, 6.871410873553005e16, 3.9727060811656064e18),
)
# Squares of the first two zeros of J0 and of J1.
_ZEROS0 = (5.78318596294678452118, 30.4712623436620863991)
_ZEROS1 = (14.6819706421238932572, 49.2184563216946036703)
_TWO_OVER_PI = 2.0 / math.pi
_ROOT_OF_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
# Airy below -2.09, in 1 / zeta^2.
_AFN = (
    *(-0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191),
    *(-0.04919001326095003, -0.004062659235948854, -0.0001592764962392621),
    *(-2.776491081552329e-06, -1.6778769848911465e-08),
)
_AFD = (
    *(1.0, 13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596),
    *(1.4752914677166642, 0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05),
    *(4.5185009297058035e-07,),
)
_AGN = (
    *(0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502),
    *(0.35146565610554764, 0.06338889196289255, 0.005858041130483885, 0.000282851600836737),
    *(6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10),
)
_AGD = (
    *(1.0, 9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755),
    *(0.9542936116189619, 0.08645808263523921, 0.004126565238242226, 0.00010125908511650914),
    *(1.1716673321441352e-06, 4.9183457006293e-09),
)
# Ai(x) on [-2.1, 1] in t = (x + 0.55) / 1.55, and Ai(x) exp(zeta) x^(1/4) for x >= 1 in
# t = 2 x^(-3/2) - 1; the Chebyshev series up to T_14 and T_10, computed with mpmath at 40 digits.
_AIRY_NEAR = (
    *(-5.4017751965e-6, 6.1597680618e-6, 7.061590619e-5, -2.6338715364e-4, 3.0631737649e-7),
    *(2.5319368909e-3, -6.7173442694e-3, -2.3926617635e-3, 4.8025333553e-2, -8.3970057993e-2),
    *(-5.6762910001e-2, 3.6675573401e-1, -3.2084487064e-1, -2.9676377216e-1, 4.8562273556e-1),
)
_AIRY_FAR = (
    *(7.1179259006e-6, -1.0770824557e-5, -7.1147555599e-7, -4.4145545609e-6, 3.2811285908e-5),
    *(-6.8440848057e-5, 1.5773469493e-4, -4.5219178073e-4, 1.6083798096e-3, -8.7547499847e-3),
    2.7099888404e-1,
)


def _waves(x: Tensor, tables: tuple[tuple[float, ...], ...]) -> tuple[Tensor, ...]:
    """sqrt(2 / (pi x)) times P, 5 / x times Q, and the sine and cosine of x - pi / 4, for x > 5."""
    w = divided(5.0, x)
    square = w * w
    p, q = quotient(square, *tables[:2]), w * quotient(square, *tables[2:])
    sine, cosine = torch.sin(x) * math.sqrt(0.5), torch.cos(x) * math.sqrt(0.5)
    scale = divided(_ROOT_OF_TWO_OVER_PI, torch.sqrt(x))
    return p * scale, q * scale, sine - cosine, sine + cosine


_PHASE0, _PHASE1 = (_PP0, _PQ0, _QP0, _QQ0), (_PP1, _PQ1, _QP1, _QQ1)


def _j0_near(x: Tensor) -> Tensor:
    square = x * x
    zeros = (square - _ZEROS0[0]) * (square - _ZEROS0[1])
    return zeros * quotient(square, _J0_P, _J0_Q)


def _j1_near(x: Tensor) -> Tensor:
    square = x * x
    zeros = (square - _ZEROS1[0]) * (square - _ZEROS1[1])
    return quotient(square, _J1_P, _J1_Q) * x * zeros


def _j0(x: Tensor) -> Tensor:
    """Within 3e-7 of 1, and of the envelope sqrt(2 / (pi x)) beyond 5."""
    a = x.abs()
    near = a <= 5.0
    p, q, sine, cosine = _waves(choose(near, 6.0, a), _PHASE0)
    return choose(near, _j0_near(choose(near, a, 1.0)), p * cosine - q * sine)


def _j1(x: Tensor) -> Tensor:
    a = x.abs()
    near = a <= 5.0
    # x - 3 pi / 4 is a quarter turn less: its cosine is the sine here, its sine minus the cosine.
    p, q, sine, cosine = _waves(choose(near, 6.0, a), _PHASE1)
    return mirrored(x, choose(near, _j1_near(choose(near, a, 1.0)), p * sine + q * cosine))


def _y0(x: Tensor) -> Tensor:
    near = x <= 5.0
    t = choose(torch.logical_and(near, x > 0), x, 1.0)
    small = quotient(t * t, _Y0_P, _Y0_Q) + torch.log(t) * _j0_near(t) * _TWO_OVER_PI
    p, q, sine, cosine = _waves(choose(near, 6.0, x), _PHASE0)
    found = choose(near, small, p * sine + q * cosine)
    return choose(x == 0, -INF, choose(x < 0, NAN, found))


def _y1(x: Tensor) -> Tensor:
    near = x <= 5.0
    t = choose(torch.logical_and(near, x > 0), x, 1.0)
    rest = (_j1_near(t) * torch.log(t) - divided(1.0, t)) * _TWO_OVER_PI
    small = t * quotient(t * t, _Y1_P, _Y1_Q) + rest
    p, q, sine, cosine = _waves(choose(near, 6.0, x), _PHASE1)
    found = choose(near, small, q * sine - p * cosine)
    return choose(x == 0, -INF, choose(x < 0, NAN, found))


# sin(x) / x in x^2 where |x| < 0.5.
_SINC = (1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0)


def _spherical_j0(x: Tensor) -> Tensor:
    near, infinite = x.abs() < 0.5, x.abs() == INF
    small = choose(near, x, 0.0)
    t = choose(torch.logical_or(near, infinite), 1.0, x)
    found = choose(near, polynomial(small * small, _SINC), torch.sin(t) / t)
    return choose(infinite, 0.0, found)


def _airy(x: Tensor) -> Tensor:
    """Within 1e-6 relative from -2 to 4; the exponential and the sine magnify what zeta is rounded
    by: 1e-7 zeta beyond."""
    left, right = x < -2.09, x >= 1.0
    # On the left the waves of zeta + pi / 4.
    size = choose(left, -x, 3.0)
    a = choose(size > 1e10, 1e10, size)  # beyond, the angle is all rounding, and would overflow
    zeta = a * torch.sqrt(a) * (2.0 / 3.0)
    z = divided(1.0, zeta)
    square = z * z
    sine, cosine = torch.sin(zeta) * math.sqrt(0.5), torch.cos(zeta) * math.sqrt(0.5)
    waves = (sine + cosine) * (square * quotient(square, _AFN, _AFD) + 1.0)
    waves = waves - (cosine - sine) * (z * quotient(square, _AGN, _AGD))
    waves = waves / torch.sqrt(torch.sqrt(size)) * math.sqrt(1.0 / math.pi)
    # On the right it falls.
    b = choose(right, choose(x > 110.0, 110.0, x), 1.0)
    root = torch.sqrt(b)
    power = b * root
    falling = polynomial(divided(2.0, power) - 1.0, _AIRY_FAR) / torch.sqrt(root)
    falling = falling * torch.exp(power * (-2.0 / 3.0))
    t = choose(torch.logical_or(left, right), 0.0, x)
    middle = polynomial((t + 0.55) * (1.0 / 1.55), _AIRY_NEAR)
    found = choose(left, waves, choose(right, falling, middle))
    return choose(x.abs() == INF, NAN, found)


BESSEL_RULES: dict[Any, Any] = {
    aten.special_bessel_j0.default: formula(_j0),
    aten.special_bessel_j1.default: formula(_j1),
    aten.special_bessel_y0.default: formula(_y0),
    aten.special_bessel_y1.default: formula(_y1),
    aten.special_spherical_bessel_j0.default: formula(_spherical_j0),
    aten.special_airy_ai.default: formula(_airy),
}
