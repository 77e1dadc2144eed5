"""The rules that other tools compare an artifact with eager by: one input, one tolerance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "accepted_by"]

Array = NDArray[Any]


def _allclose(rtol: float, atol: float) -> Callable[[Array, Array], bool]:
    return lambda got, eager: bool(np.allclose(got, eager, rtol=rtol, atol=atol, equal_nan=True))


def _elementwise(got: Array, eager: Array) -> bool:
    """Wrong is what is off by more than 1e-5 absolutely and by more than 1e-5 relatively."""
    with np.errstate(divide="ignore", invalid="ignore"):
        absolute = np.abs(got - eager)
        relative = absolute / np.abs(eager)
    return not bool(np.any((absolute > 1e-5) & (relative > 1e-5)))


def _signal_to_noise(got: Array, eager: Array) -> bool:
    """PSNR above 30 dB, the peak being the largest magnitude."""
    error, peak = float(np.mean((got - eager) ** 2)), float(np.abs(eager).max())
    return error == 0 or (peak > 0 and bool(10 * np.log10(peak**2 / error) > 30))


def _cosine(got: Array, eager: Array) -> bool:
    size = float(np.linalg.norm(got) * np.linalg.norm(eager))
    return bool(np.array_equal(got, eager)) or (
        size > 0 and float(np.vdot(got, eager)) / size >= 0.997
    )


RULES: dict[str, Callable[[Array, Array], bool]] = {
    "allclose(atol=1e-5)": _allclose(1e-5, 1e-5),
    "1e-5, absolute or relative": _elementwise,
    "allclose(rtol=1e-3, atol=1e-4)": _allclose(1e-3, 1e-4),
    "PSNR > 30 dB": _signal_to_noise,
    "cosine >= 0.997": _cosine,
}


def accepted_by(got: Mapping[str, Array] | None, eager: Mapping[str, Array]) -> dict[str, bool]:
    """Which rules pass every output; none does where there are none, or their shape is another."""

    def passes(rule: Callable[[Array, Array], bool]) -> bool:
        return got is not None and all(
            name in got
            and got[name].shape == right.shape
            and rule(got[name].astype(np.float64), right.astype(np.float64))
            for name, right in eager.items()
        )

    return {name: passes(rule) for name, rule in RULES.items()}
