"""Special functions are rewritten as plain operators that keep their digits in float32.

The truth is torch in float64, at the float32 values that the rewritten graph gets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules.special_functions import SPECIAL_RULES
from torch import Tensor, nn

S = torch.special
INF, NAN = float("inf"), float("nan")
Function = Callable[..., Any]


class Calls(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def rewritten(function: Function, *args: Tensor) -> torch.fx.GraphModule:
    """The graph of `function` after the rules; none of their operators is left but on integers."""
    program = flat_program(isomorph.trace(Calls(function).eval(), args=args))
    legalize(program, lambda node: node.target not in SPECIAL_RULES, SPECIAL_RULES)
    left = [n for n in program.graph.nodes if n.target in SPECIAL_RULES]
    assert not [n.target for n in left if n.meta["val"].dtype != torch.int64]
    return program.graph_module


def computed(function: Function, *args: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return list(torch.fx.Interpreter(rewritten(function, *args)).run(*args))


def spaced(low: float, high: float, count: int = 2001) -> Tensor:
    return torch.linspace(low, high, count)


def powers(low: float, high: float) -> Tensor:
    """Both signs of the powers of ten between 10^low and 10^high."""
    found = torch.logspace(low, high, 401)
    return torch.cat([found, -found])


EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1e-10, -1e-10, INF, -INF, NAN])
EVERYWHERE = torch.cat([spaced(-20, 20), powers(-30, 30), EDGES])
POSITIVE = torch.cat([spaced(1e-3, 40), torch.logspace(-30, 30, 401), EDGES])
UNIT = torch.cat([spaced(-1, 1), powers(-30, 0), EDGES])


def exact(function: Function) -> Function:
    return lambda *args: function(*(a.double() for a in args))


# The function, where, how far off at most, and of what beside the value itself: a function that
# crosses zero has no relative accuracy there, nor has torch.
UNARY: dict[str, tuple[Function, Tensor, float, float]] = {
    "expm1": (torch.expm1, torch.cat([spaced(-20, 88), powers(-30, 1), EDGES]), 5e-7, 0),
    "log1p": (torch.log1p, torch.cat([spaced(-1, 20), powers(-30, 30), EDGES]), 5e-7, 0),
    "asinh": (torch.asinh, EVERYWHERE, 5e-7, 0),
    "acosh": (torch.acosh, torch.cat([1 + torch.logspace(-6, 30, 2001), EDGES]), 5e-7, 0),
    "atanh": (torch.atanh, UNIT, 5e-7, 0),
    "sinh": (torch.sinh, torch.cat([spaced(-89, 89), powers(-30, 0), EDGES]), 5e-7, 0),
    "sinc": (torch.sinc, torch.cat([spaced(-5, 5), powers(-30, 0), EDGES]), 1e-6, 1e-6),
    "erfc": (torch.erfc, torch.cat([spaced(-10, 9), powers(-30, 0), EDGES]), 1e-6, 0),
    "erfcx": (S.erfcx, torch.cat([spaced(-9.3, 50), torch.logspace(1, 30, 99), EDGES]), 1e-6, 0),
    "erfinv": (torch.erfinv, torch.cat([UNIT, 1 - torch.logspace(-7, 0, 200)]), 1e-6, 0),
    "ndtr": (S.ndtr, torch.cat([spaced(-5, 12), EDGES]), 1e-6, 0),
    "log_ndtr": (S.log_ndtr, torch.cat([spaced(-1e4, 12), spaced(-12, 12), EDGES]), 1e-6, 0),
    "ndtri": (S.ndtri, torch.cat([UNIT.abs(), EDGES]), 1e-6, 0),
    "lgamma": (torch.lgamma, POSITIVE, 1e-6, 0),
    "lgamma_negative": (torch.lgamma, torch.cat([-spaced(1e-3, 40), EDGES]), 1e-6, 1),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 3), spaced(1.01, 40), 1e-6, 1),
    "digamma": (torch.digamma, POSITIVE, 1e-6, 0),
    "digamma_negative": (torch.digamma, torch.cat([-spaced(1e-3, 20), EDGES]), 1e-6, 1),
    "polygamma_0": (lambda x: torch.polygamma(0, x), POSITIVE, 1e-6, 0),
    **{
        f"polygamma_{n}": (partial(torch.polygamma, n), spaced(1e-3, 40), 1e-6, 0)
        for n in (1, 2, 3, 4)
    },
    "polygamma_6": (partial(torch.polygamma, 6), spaced(1e-3, 40), 2e-6, 0),
    "i0": (torch.i0, torch.cat([spaced(-90, 90), powers(-30, 0), EDGES]), 1e-6, 0),
    "i0e": (S.i0e, EVERYWHERE[EVERYWHERE.isfinite()], 1e-6, 0),
    "i1": (S.i1, torch.cat([spaced(-90, 90), powers(-30, 0), EDGES]), 2e-6, 0),
    "i1e": (S.i1e, EVERYWHERE[EVERYWHERE.isfinite()], 2e-6, 0),
    "modified_bessel_i0": (S.modified_bessel_i0, torch.cat([spaced(-90, 90), EDGES]), 1e-6, 0),
    "modified_bessel_i1": (S.modified_bessel_i1, torch.cat([spaced(-90, 90), EDGES]), 2e-6, 0),
    "modified_bessel_k0": (S.modified_bessel_k0, torch.cat([spaced(-1, 80), EDGES]), 1e-6, 0),
    "modified_bessel_k1": (S.modified_bessel_k1, torch.cat([spaced(-1, 80), EDGES]), 1e-6, 0),
    "scaled_k0": (S.scaled_modified_bessel_k0, POSITIVE, 1e-6, 0),
    "scaled_k1": (S.scaled_modified_bessel_k1, POSITIVE, 1e-6, 0),
    "bessel_j0": (S.bessel_j0, torch.cat([spaced(-60, 60), EDGES]), 1e-6, 0.3),
    "bessel_j1": (S.bessel_j1, torch.cat([spaced(-60, 60), EDGES]), 1e-6, 0.3),
    "bessel_j1_small": (S.bessel_j1, powers(-30, 0), 1e-6, 0),
    "bessel_y0": (S.bessel_y0, torch.cat([spaced(-1, 60), EDGES]), 2e-6, 0.3),
    "bessel_y1": (S.bessel_y1, torch.cat([spaced(-1, 60), EDGES]), 2e-6, 0.3),
    "spherical_bessel_j0": (S.spherical_bessel_j0, torch.cat([spaced(-60, 60), EDGES]), 1e-6, 0.01),
    "airy_ai": (S.airy_ai, torch.cat([spaced(-2, 4), EDGES]), 1e-6, 0),
    "airy_ai_left": (S.airy_ai, spaced(-10, -2), 1e-5, 0.3),
    "entr": (S.entr, EVERYWHERE, 1e-6, 0),
    "log_sigmoid_by_log1p": (lambda x: -torch.log1p(torch.exp(-x)), spaced(-20, 60), 1e-6, 0),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_keeps_its_digits_and_its_edges(name: str) -> None:
    function, x, off, beside = UNARY[name]
    x = x[torch.isfinite(function(x)) | ~torch.isfinite(exact(function)(x))]

    (found,) = computed(function, x)

    close(found, exact(function)(x), off, beside)


def close(found: Tensor, truth: Tensor, off: float, beside: float = 0) -> None:
    """Equal where NaN or infinite in float32; below the smallest normal float32 all are zero."""
    assert found.dtype == torch.float32
    rounded = truth.float().double()
    assert torch.equal(found.isnan(), rounded.isnan())
    infinite = rounded.isinf()
    assert torch.equal(found.double()[infinite], rounded[infinite])
    finite = rounded.isfinite()
    size = truth[finite].abs().clamp(min=max(beside, 2e-38))
    worst = ((found[finite].double() - truth[finite]).abs() / size).max()
    assert worst <= off, f"{worst:.2e} off"


PAIRS = torch.cartesian_prod(EDGES, EDGES).T.contiguous()


def random_pairs(scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 2000, generator=generator) * scale


BINARY: dict[str, tuple[Function, float, float]] = {
    "hypot": (torch.hypot, 5e-7, 0),
    "logaddexp": (torch.logaddexp, 5e-7, 1),
    "logaddexp2": (torch.logaddexp2, 5e-7, 1),
    "xlogy": (torch.xlogy, 5e-7, 0),
    "xlog1py": (S.xlog1py, 5e-7, 0),
    "copysign": (torch.copysign, 0, 0),
    "heaviside": (torch.heaviside, 0, 0),
    "fmax": (torch.fmax, 0, 0),
    "fmin": (torch.fmin, 0, 0),
    "fmod": (torch.fmod, 0, 0),
    "remainder": (torch.remainder, 3e-7, 0),  # of another sign than x: rounded once
}


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_keeps_its_digits_and_its_edges(name: str) -> None:
    function, off, beside = BINARY[name]
    x, y = torch.cat([PAIRS, random_pairs(1), random_pairs(30)], dim=1)

    (found,) = computed(function, x, y)

    close(found, exact(function)(x, y), off, beside)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
@pytest.mark.parametrize("size", [0.01, 1.0, 5.0, 12.0, 30.0, 500.0])
def test_incomplete_gamma_functions_in_every_range(name: str, size: float) -> None:
    function = getattr(torch, name)
    generator = torch.Generator().manual_seed(0)
    a = size * (0.5 + torch.rand(4000, generator=generator))
    x = torch.cat([a[:2000] * (3 * torch.rand(2000, generator=generator)), 3 * a[2000:] / size])
    truth = exact(function)(a, x)
    # torch's own float64 loses Q below 1e-6, and both lose what an exponent of 40 is rounded by.
    usual = truth > 1e-6

    (found,) = computed(function, a, x)

    close(found[usual], truth[usual], 4e-6 if size < 20 else 1e-5)


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_at_their_edges(name: str) -> None:
    a, x = PAIRS[:, ~(PAIRS.isnan().any(0) | (PAIRS == 1e-10).any(0))]

    (found,) = computed(getattr(torch, name), a, x)

    close(found, exact(getattr(torch, name))(a, x), 1e-6)


def test_zeta_by_sums_of_a_fixed_length() -> None:
    generator = torch.Generator().manual_seed(0)
    s = torch.cat([1 + 20 * torch.rand(2000, generator=generator), torch.tensor([0.5, 1.0, 2.0])])
    q = torch.cat([torch.rand(2000, generator=generator) * 50, torch.tensor([1.0, 1.0, -3.0])])

    (found,) = computed(S.zeta, s, q)

    close(found, exact(S.zeta)(s, q), 1e-6)


TINY = torch.tensor([3.4e38, 1e-45, -1e-45, 2.0**-126, 2.0**-125, 2.0**-100, 1.9999999, 4.0])
EXACT: dict[str, Function] = {
    "round": torch.round,
    "round_2": lambda x: torch.round(x, decimals=2),
    "round_-1": lambda x: torch.round(x, decimals=-1),
    "sign": torch.sign,
    "sgn": torch.sgn,
    "angle": torch.angle,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "nan_to_num": torch.nan_to_num,
    "nan_to_num_given": lambda x: torch.nan_to_num(x, nan=2.0, posinf=3.0, neginf=-4.0),
    "frexp": torch.frexp,
    "copysign_number": lambda x: torch.copysign(x, -0.0),
    "fmod_number": lambda x: torch.fmod(x, -0.7),
    "remainder_number": lambda x: x % 2.5,
    "remainder_of_number": lambda x: torch.remainder(5, x),
    "reciprocal": torch.reciprocal,
    "nextafter": lambda x: torch.nextafter(x, x * 0 + 1),
    "nextafter_inf": lambda x: torch.nextafter(x, torch.full_like(x, -INF)),
    "ldexp": lambda x: torch.ldexp(x, torch.full_like(x, 3)),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_in_torch_stays_so_bit_by_bit(name: str) -> None:
    halves = torch.arange(-40, 40) * 0.5
    near = torch.cat([halves, halves + 4194304, halves * 8388608, random_pairs(100).flatten()])
    x = torch.cat([near, EDGES, powers(-37, 37) if "mod" not in name else TINY[3:], TINY])
    if "mod" in name or "remainder" in name:
        x = x[(x.abs() < 1e6) | ~x.isfinite()]
        x = x[(x.abs() > 1e-6) | ~name.endswith("of_number")]
    function = EXACT[name]
    truth = torch.utils._pytree.tree_leaves(function(x))

    found = computed(function, x)

    for one, wanted in zip(found, truth, strict=True):
        assert one.dtype == wanted.dtype
        assert torch.equal(one.isnan(), wanted.isnan())
        assert torch.equal(one[~one.isnan()], wanted[~wanted.isnan()])
        if one.is_floating_point() and name != "nan_to_num_given":
            assert torch.equal(one.signbit()[~one.isnan()], wanted.signbit()[~one.isnan()])


def test_the_sign_bit_of_a_zero_is_seen() -> None:
    x = EDGES[~EDGES.isnan()]

    (found,) = computed(torch.signbit, x)

    assert torch.equal(found, x.signbit())


def test_a_quotient_just_below_an_integer_is_not_rounded_onto_it() -> None:
    y = random_pairs(1)[0].abs() + 0.1
    x = torch.nextafter(y * torch.arange(1, 2001), torch.zeros(2000))

    (found,) = computed(torch.fmod, x, y)

    assert torch.equal(found, torch.fmod(x, y))


@pytest.mark.parametrize("function", [torch.fmod, torch.fmax, torch.fmin])
def test_integers_stay_integers(function: Function) -> None:
    x = torch.tensor([7, -7, 7, -7, 16777217, 0])
    y = torch.tensor([3, 3, -3, -3, 2, 5])

    (found,) = computed(function, x, y)

    assert found.dtype == torch.int64
    assert torch.equal(found, function(x, y))


def test_integers_are_promoted_as_torch_does() -> None:
    x = torch.arange(1, 9)

    (found,) = computed(torch.lgamma, x)

    close(found, torch.lgamma(x.double()), 1e-6)


def test_half_precision_is_computed_in_float32_and_rounded_once() -> None:
    x = spaced(0.01, 60, 501).half()

    (found,) = computed(torch.digamma, x)

    assert found.dtype == torch.float16
    assert torch.equal(found, torch.digamma(x.float()).half())


def test_float64_is_left_alone() -> None:
    x = spaced(1, 2).double()
    program = flat_program(isomorph.trace(Calls(torch.lgamma), args=(x,)))

    legalize(program, lambda node: node.target not in SPECIAL_RULES, SPECIAL_RULES)

    assert torch.ops.aten.lgamma.default in [n.target for n in program.graph.nodes]


POLYNOMIALS = [
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"),
    "legendre_polynomial_p",
]


@pytest.mark.parametrize("name", POLYNOMIALS)
@pytest.mark.parametrize("degree", [-1, 0, 1, 2, 3, 7, 12])
def test_a_polynomial_of_known_degree_is_its_recurrence(name: str, degree: int) -> None:
    x = torch.cat([spaced(-1.5, 1.5), torch.tensor([0.0, -0.0, 1.0, -1.0])])
    polynomial = getattr(S, name)

    (found,) = computed(lambda x: polynomial(x, degree), x)

    truth = polynomial(x.double(), degree)
    close(found, truth, 4e-6, beside=float(truth.abs().max()) * 0.05)


@pytest.mark.parametrize(
    "degree", [lambda: torch.tensor(3.0), lambda: torch.full((), 3.0)], ids=["tensor", "full"]
)
def test_the_degree_may_be_a_constant_tensor(degree: Callable[[], Tensor]) -> None:
    graph = rewritten(lambda x: S.hermite_polynomial_h(x, degree()), torch.rand(5))

    x = torch.rand(5)
    holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    given = [x if holder is holders[-1] else torch.tensor(3.0) for holder in holders]
    (found,) = torch.fx.Interpreter(graph).run(*given)
    torch.testing.assert_close(found, S.hermite_polynomial_h(x, 3))


def test_a_degree_that_the_model_is_given_cannot_be_unrolled() -> None:
    args = (torch.rand(5), torch.tensor([3.0]))
    program = flat_program(isomorph.trace(Calls(S.legendre_polynomial_p), args=args))

    legalize(program, lambda node: node.target not in SPECIAL_RULES, SPECIAL_RULES)

    targets = [n.target for n in program.graph.nodes]
    assert torch.ops.aten.special_legendre_polynomial_p.default in targets


def test_a_number_in_the_place_of_a_tensor() -> None:
    x = spaced(1.5, 9)

    found = computed(lambda x: (torch.xlogy(2.0, x), torch.xlogy(x, 3.0), S.zeta(x, 2.0)), x)

    wide = x.double()
    wanted = (torch.xlogy(2.0, wide), torch.xlogy(wide, 3.0), S.zeta(wide, 2.0))
    for one, truth in zip(found, wanted, strict=True):
        close(one, truth, 1e-6)


def test_tensors_without_axes() -> None:
    x = torch.tensor(2.5)

    found = computed(lambda x: (torch.lgamma(x), torch.erfc(x), torch.igamma(x, x)), x)

    assert [one.shape for one in found] == [()] * 3
    for one, truth in zip(found, (torch.lgamma(x), torch.erfc(x), torch.igamma(x, x)), strict=True):
        torch.testing.assert_close(one, truth)


THROUGH_CORE_ML: dict[str, tuple[Function, Tensor]] = {
    "expm1": (torch.expm1, torch.cat([powers(-20, 0), torch.tensor([0.0, -INF, NAN])])),
    "log1p": (torch.log1p, torch.cat([powers(-20, -1), torch.tensor([0.0, -1.0, -2.0, INF])])),
    "reciprocal": (torch.reciprocal, torch.tensor([1e-4, -1e-4, 1e-3, 0.0, -0.0, 5.0, INF])),
    "round": (torch.round, torch.arange(-9, 9) * 0.5),
    "erfcx": (S.erfcx, spaced(-5, 30, 101)),
    "digamma": (torch.digamma, torch.tensor([0.1, 1.4616321, 9.0, -0.25, -2.75, 0.0, -1.0])),
    "bessel_y0": (S.bessel_y0, spaced(0.1, 30, 101)),
    "remainder": (lambda x: x % 0.1, spaced(-2, 2, 101)),
}


@pytest.mark.parametrize("name", THROUGH_CORE_ML)
def test_the_digits_arrive_in_a_core_ml_package(name: str, tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from isomorph.targets.base import Signature
    from isomorph.targets.coreml.target import CoreMlOptions, CoreMlTarget

    function, x = THROUGH_CORE_ML[name]
    target = CoreMlTarget()
    graph = isomorph.trace(Calls(function), args=(x,))

    artifact = target.convert(graph, CoreMlOptions(), tmp_path, "model")
    with target.open(
        artifact.path, signature=Signature(artifact.inputs, artifact.outputs)
    ) as session:
        (found,) = session.run({session.inputs[0].name: x.numpy()}).values()

    truth = function(x).double() if name == "remainder" else exact(function)(x)
    crosses_zero = name in ("bessel_y0", "digamma")
    close(torch.from_numpy(found), truth, 1e-6, beside=0.3 if crosses_zero else 0)
