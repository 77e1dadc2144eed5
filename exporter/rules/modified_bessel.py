"""Modified Bessel functions in float32, by the Chebyshev series of Cephes (i0.c, i1.c, k0.c, k1.c).

Of each series the terms below 2e-9 of the largest are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .formulas import INF, NAN, chebyshev, choose, divided, formula, mirrored

__all__ = ["MODIFIED_BESSEL_RULES"]

aten = torch.ops.aten

_I0_NEAR = (
    *(2.6598237246823866e-09, -1.300025009986248e-08, 6.046995022541919e-08),
    *(-2.670793853940612e-07, 1.1173875391201037e-06, -4.4167383584587505e-06),
    *(1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165),
    *(-0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576),
    *(0.010546460394594998, -0.02373741480589947, 0.04930528423967071, -0.09490109704804764),
    *(0.17162090152220877, -0.3046826723431984, 0.6767952744094761),
)
_I0_FAR = (
    *(3.3962320257083865e-09, 2.266668990498178e-08, 2.0489185894690638e-07),
    *(2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943, 0.8044904110141088),
)
_K0_NEAR = (
    *(1.904516377220209e-09, 2.5347910790261494e-07, 2.286212103119452e-05),
    *(0.001264615411446926, 0.0359799365153615, 0.3442898999246285, -0.5353273932339028),
)
_K0_FAR = (
    *(8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07),
    *(-1.8317555227191195e-06, 1.39498137188765e-05, -0.00012849549581627802),
    *(0.0015698838857300533, -0.0314481013119645, 2.4403030820659555),
)
_I1_NEAR = (
    *(-1.8872497517228294e-09, 9.381537386495773e-09, -4.445059128796328e-08),
    *(2.0032947535521353e-07, -8.568720264695455e-07, 3.4702513081376785e-06),
    *(-1.3273163656039436e-05, 4.781565107550054e-05, -0.00016176081582589674),
    *(0.0005122859561685758, -0.0015135724506312532, 0.004156422944312888),
    *(-0.010564084894626197, 0.024726449030626516, -0.05294598120809499, 0.1026436586898471),
    *(-0.17641651835783406, 0.25258718644363365),
)
_I1_FAR = (
    *(-3.835380385964237e-09, -2.6314688468895196e-08, -2.512236237870209e-07),
    *(-3.882564808877691e-06, -0.00011058893876262371, -0.009761097491361469),
    *(0.7785762350182801,),
)
_K1_NEAR = (
    *(-2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052),
    *(-0.006975723859639864, -0.12261118082265715, -0.3531559607765449, 1.5253002273389478),
)
_K1_FAR = (
    *(-1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07),
    *(2.406484947837217e-06, -1.936197974166083e-05, 0.00019521551847135162),
    *(-0.002857816859622779, 0.10392373657681724, 2.7206261904844427),
)


def _scaled_i(a: Tensor, near: Sequence[float], far: Sequence[float]) -> Tensor:
    """exp(-a) I(a) for a >= 0; I1 needs the factor `a` up to 8."""
    close = a <= 8.0
    b = choose(close, 8.0, a)
    large = chebyshev(divided(32.0, b) - 2.0, far) / torch.sqrt(b)
    return choose(close, chebyshev(choose(close, a, 0.0) * 0.5 - 2.0, near), large)


def _i0e(x: Tensor) -> Tensor:
    return _scaled_i(x.abs(), _I0_NEAR, _I0_FAR)


def _i1e(x: Tensor) -> Tensor:
    a = x.abs()
    found = _scaled_i(a, _I1_NEAR, _I1_FAR)
    return mirrored(x, choose(a <= 8.0, found * a, found))


def _grown(scaled: Tensor, x: Tensor) -> Tensor:
    """exp(|x|) in two halves, so that it does not overflow before the product does."""
    half = torch.exp(x.abs() * 0.5)
    return scaled * half * half


def _i0(x: Tensor) -> Tensor:
    """Within 1e-6 relative; NaN at the infinities, as in torch."""
    return _grown(_i0e(x), x)


def _i1(x: Tensor) -> Tensor:
    """Within 1.5e-6 relative; NaN at the infinities, as in torch."""
    return _grown(_i1e(x), x)


def _k(x: Tensor, *, order: int, scaled: bool) -> Tensor:
    """K of order 0 or 1, times exp(x) if `scaled`: infinite at zero, NaN below."""
    near, far = (_K0_NEAR, _K0_FAR) if order == 0 else (_K1_NEAR, _K1_FAR)
    close = x <= 2.0
    t = choose(torch.logical_and(close, x > 0), x, 1.0)
    series, logarithm = chebyshev(t * t - 2.0, near), torch.log(t * 0.5)
    small = series - logarithm * _i0(t) if order == 0 else logarithm * _i1(t) + series / t
    u = choose(close, 2.0, x)
    large = chebyshev(divided(8.0, u) - 2.0, far) / torch.sqrt(u)
    if scaled:
        small = small * torch.exp(t)
    else:
        large = torch.exp(-u) * large
    found = choose(close, small, large)
    return choose(x == 0, INF, choose(x < 0, NAN, found))


def _k_rule(order: int, *, scaled: bool) -> Any:
    return formula(lambda x: _k(x, order=order, scaled=scaled))


MODIFIED_BESSEL_RULES: dict[Any, Any] = {
    aten.i0.default: formula(_i0),
    aten.special_i0.default: formula(_i0),
    aten.special_i0e.default: formula(_i0e),
    aten.special_i1.default: formula(_i1),
    aten.special_i1e.default: formula(_i1e),
    aten.special_modified_bessel_i0.default: formula(_i0),
    aten.special_modified_bessel_i1.default: formula(_i1),
    aten.special_modified_bessel_k0.default: _k_rule(0, scaled=False),
    aten.special_modified_bessel_k1.default: _k_rule(1, scaled=False),
    aten.special_scaled_modified_bessel_k0.default: _k_rule(0, scaled=True),
    aten.special_scaled_modified_bessel_k1.default: _k_rule(1, scaled=True),
}
