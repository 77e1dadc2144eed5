"""Fourier transforms as products compute what torch.fft does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules.fourier import FOURIER_RULES, fourier_to_products
from isomorph.exporter.rules.strided import STRIDED_RULES
from torch import Tensor, nn

fft = torch.fft
X = torch.randn(3, 6, 7, generator=torch.Generator().manual_seed(0))
WAVE = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
NORMS = (None, "forward", "backward", "ortho")


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def demand_same(function: Callable[[Tensor], Any], x: Tensor, tolerance: float = 1e-6) -> None:
    program = flat_program(isomorph.trace(Calls(function), args=(x,)))
    assert {n.target for n in program.graph.nodes} & set(FOURIER_RULES)
    fourier_to_products(program)
    legalize(program, lambda n: n.target not in STRIDED_RULES, STRIDED_RULES, decompose)
    values = [n.meta.get("val") for n in program.graph.nodes]
    assert not any(isinstance(v, Tensor) and v.is_complex() for v in values)
    assert not {n.target for n in program.graph.nodes} & set(FOURIER_RULES)
    with torch.no_grad():
        found = list(torch.fx.Interpreter(program.graph_module).run(x))
    for a, b in zip(found, torch.utils._pytree.tree_leaves(function(x)), strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * b.abs().max()


def real(z: Tensor) -> Tensor:
    return torch.view_as_real(z)


def made(x: Tensor) -> Tensor:
    return torch.complex(x, x.flip(-1) * 2)


ONE: dict[str, Callable[..., Tensor]] = {
    "fft": lambda x, n, norm: real(fft.fft(x, n, norm=norm)),
    "ifft": lambda x, n, norm: real(fft.ifft(made(x), n, 1, norm)),
    "rfft": lambda x, n, norm: real(fft.rfft(x, n, -2, norm)),
    "irfft": lambda x, n, norm: fft.irfft(made(x), n, norm=norm),
    "irfft_of_real": lambda x, n, norm: fft.irfft(x, n, 0, norm),
    "hfft": lambda x, n, norm: fft.hfft(made(x), n, norm=norm),
    "ihfft": lambda x, n, norm: real(fft.ihfft(x, n, norm=norm).resolve_conj()),
    "conjugate": lambda x, n, norm: fft.irfft(made(x).conj(), n, norm=norm),
}
MANY: dict[str, Callable[..., Tensor]] = {
    "fft2": lambda x, s, norm: real(fft.fft2(made(x), s, norm=norm)),
    "ifftn": lambda x, s, norm: real(fft.ifftn(x, s, norm=norm)),
    "rfft2": lambda x, s, norm: real(fft.rfft2(x, s, (2, 0), norm)),
    "irfft2": lambda x, s, norm: fft.irfft2(made(x), s, norm=norm),
    "irfftn": lambda x, s, norm: fft.irfftn(x, s, norm=norm),
    "hfft2": lambda x, s, norm: fft.hfft2(made(x), s, norm=norm),
    "hfftn": lambda x, s, norm: fft.hfftn(x, s, norm=norm),
    "ihfftn": lambda x, s, norm: real(fft.ihfftn(x, s, norm=norm).resolve_conj()),
    "round_trip": lambda x, s, norm: fft.irfft2(fft.rfft2(x, s, norm=norm), s, norm=norm),
}


@pytest.mark.parametrize(("n", "norm"), zip((None, 5, 12, 6), NORMS, strict=True))
@pytest.mark.parametrize("name", ONE)
def test_of_one_axis(name: str, n: int | None, norm: str | None) -> None:
    demand_same(lambda x: ONE[name](x, n, norm), X)


@pytest.mark.parametrize(
    ("sizes", "norm"), zip((None, (5, 8), (-1, 9), (4, -1)), NORMS, strict=True)
)
@pytest.mark.parametrize("name", MANY)
def test_of_many_axes(name: str, sizes: tuple[int, ...] | None, norm: str | None) -> None:
    demand_same(lambda x: MANY[name](x, sizes, norm), X)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 257, 1000])
def test_sizes(n: int) -> None:
    x = torch.randn(2, n, generator=torch.Generator().manual_seed(n))
    demand_same(lambda y: fft.irfft(fft.rfft(y), n), x)
    # The order of a product's sums is the machine's: 1000 terms were up to 1.01e-6 off.
    demand_same(lambda y: real(fft.fft(y)), x, tolerance=3e-6)


def spectrum(x: Tensor, **options: Any) -> Tensor:
    return torch.stft(x, 12, 4, window=torch.hann_window(12), return_complex=True, **options)


SHORT: dict[str, Callable[[Tensor], Tensor]] = {
    "stft": lambda x: real(spectrum(x)),
    "power": lambda x: spectrum(x).abs() ** 2,
    "normalized": lambda x: real(spectrum(x, normalized=True)),
    "two_sided": lambda x: real(spectrum(x, onesided=False, center=False)),
    "short_window": lambda x: real(
        torch.stft(x, 16, 5, 11, torch.hamming_window(11), return_complex=True)
    ),
    "no_window": lambda x: real(torch.stft(x, 16, return_complex=True)),
    "istft": lambda x: torch.istft(spectrum(x), 12, 4, window=torch.hann_window(12)),
    "istft_length": lambda x: torch.istft(
        spectrum(x), 12, 4, window=torch.hann_window(12), length=50
    ),
    "istft_two_sided": lambda x: torch.istft(
        spectrum(x, onesided=False, normalized=True),
        *(12, 4, 12, torch.hann_window(12), True, True, False),
    ),
    "istft_gained": lambda x: torch.istft(spectrum(x) * 0.5, 12, 4, window=torch.hann_window(12)),
}


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("name", SHORT)
def test_short_time(name: str) -> None:
    demand_same(SHORT[name], WAVE)


def test_too_long_a_transform_makes_no_table() -> None:
    program = flat_program(
        isomorph.trace(Calls(lambda x: real(fft.fft(x))), args=(torch.zeros(5000),))
    )
    fourier_to_products(program)
    assert torch.ops.aten.cos.default not in {n.target for n in program.graph.nodes}
