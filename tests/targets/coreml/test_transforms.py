"""Fourier transforms, sampling, borders and rare convolutions in packages, by the evaluator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it

_GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_GENERATOR)


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 12, 4, window=torch.hann_window(12), return_complex=True)


CASES: dict[str, tuple[Any, ...]] = {
    "rfft_irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, 9), normal(2, 9)),
    "hfft2": (torch.fft.hfft2, normal(3, 4)),
    "istft": (
        lambda x: torch.istft(spectrum(x), 12, 4, window=torch.hann_window(12)),
        normal(2, 40),
    ),
    "sampled_volume": (
        lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
        *(normal(1, 2, 3, 4, 3), normal(1, 2, 3, 2, 3)),
    ),
    "antialiased": (
        lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
        normal(1, 2, 7, 9),
    ),
    "circular": (lambda x: F.pad(x, (1, 2, 3, 1), mode="circular"), normal(1, 2, 4, 5)),
    "transposed_of_one": (
        lambda x, w: F.conv_transpose2d(x, w, stride=3, output_padding=1),
        *(normal(4, 3, 2), normal(4, 2, 2, 3)),
    ),
    "conv_of_one": (F.conv2d, normal(3, 5, 5), normal(2, 3, 2, 2)),
    "roll": (lambda x: torch.roll(x, 3), normal(2, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_packages_compute_what_torch_does(name: str, write: Any) -> None:
    function, *tensors = CASES[name]
    write(function, *tensors).demand_right(*tensors, tolerance=1e-5)


def test_a_fixed_transposed_convolution_that_adds_more_than_it_cuts(write: Any) -> None:
    model = torch.nn.ConvTranspose2d(2, 3, 3, stride=3, output_padding=(1, 2))
    x = normal(1, 2, 3, 4)
    write(model, x).demand_right(x, tolerance=1e-5)
