"""Error metrics between arrays: how far, how large, and which values are not finite.

Pure numpy, no opinion: `verdict` turns these figures into pass or fail. Every
figure is computed in float64 whatever the arrays' dtype, over the elements that
are finite on both sides; `nonfinite_mismatches` speaks about the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HISTOGRAM_EDGES",
    "Errors",
    "Signal",
    "discrete_mismatches",
    "error_histogram",
    "errors_of",
    "nonfinite_codes",
    "nonfinite_mismatches",
    "pool_errors",
    "pool_signals",
    "scaled_errors",
    "signal_of",
]

Array = NDArray[Any]

# Powers of two between which the errors of elements are counted, relative to RMS(T): from far below
# float32's spacing (2^-23) to far above the output itself.
HISTOGRAM_EDGES = tuple(range(-40, 9, 2))


@dataclass(frozen=True)
class Signal:
    """Size of the truth T: `peak` is max|T|, `rms` is RMS(T), over `count` finite elements."""

    count: int
    peak: float
    rms: float


@dataclass(frozen=True)
class Errors:
    """Size of e = y - T: max|e|, RMS(e), and max|e|/|T| where T is not 0.

    `shift` is the mean of e with its sign and `gain` the mean of e T / RMS(T): what rounding leaves
    near zero and a systematic fault does not. Of complex values the real and imaginary parts count
    as two elements there.
    """

    count: int
    peak: float
    rms: float
    relative: float
    shift: float = 0.0
    gain: float = 0.0


def signal_of(truth: Array) -> Signal:
    """Measure an array of any float or complex dtype and shape, zero-size included."""
    values = _wide(truth).reshape(-1)
    magnitude = np.abs(values[np.isfinite(values)])
    return Signal(magnitude.size, _peak(magnitude), _rms(magnitude))


def errors_of(values: Array, truth: Array) -> Errors:
    """Measure `values - truth`, two arrays of the same shape.

    Raises:
        ValueError: the shapes differ.
    """
    if values.shape != truth.shape:
        raise ValueError(f"shape {values.shape} against {truth.shape}")
    got, expected = _wide(values).reshape(-1), _wide(truth).reshape(-1)
    finite = np.isfinite(got) & np.isfinite(expected)
    if not finite.all():
        got, expected = got[finite], expected[finite]
    signed = got - expected
    error, size = np.abs(signed), np.abs(expected)
    with np.errstate(divide="ignore", over="ignore"):
        relative = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
    return Errors(
        error.size,
        _peak(error),
        _rms(error),
        _peak(relative),
        *_signed_means(signed, expected, _rms(size)),
    )


def error_histogram(values: Array, truth: Array) -> tuple[int, ...]:
    """Number of elements by log2(|e| / RMS(T)), between the edges and one bin below and above.

    Elements that are not finite on both sides are left out.
    """
    got, expected = _wide(values).reshape(-1), _wide(truth).reshape(-1)
    finite = np.isfinite(got) & np.isfinite(expected)
    error, size = np.abs(got[finite] - expected[finite]), _rms(np.abs(expected[finite]))
    with np.errstate(divide="ignore"):
        places = np.digitize(np.log2(error / (size or 1.0)), HISTOGRAM_EDGES)
    return tuple(np.bincount(places, minlength=len(HISTOGRAM_EDGES) + 1).tolist())


def pool_signals(parts: Iterable[Signal]) -> Signal:
    """The signal of the parts' elements taken together."""
    parts = list(parts)
    return Signal(
        sum(p.count for p in parts),
        max((p.peak for p in parts), default=0.0),
        _pooled_rms([(p.count, p.rms) for p in parts]),
    )


def pool_errors(parts: Iterable[Errors]) -> Errors:
    """The errors of the parts' elements taken together."""
    parts = list(parts)
    count = sum(p.count for p in parts)
    return Errors(
        count,
        max((p.peak for p in parts), default=0.0),
        _pooled_rms([(p.count, p.rms) for p in parts]),
        max((p.relative for p in parts), default=0.0),
        sum(p.count * p.shift for p in parts) / (count or 1),
        sum(p.count * p.gain for p in parts) / (count or 1),
    )


def scaled_errors(errors: Errors, factor: float) -> Errors:
    """The same errors in another unit; what is relative to T stays."""
    return replace(
        errors,
        peak=errors.peak * factor,
        rms=errors.rms * factor,
        shift=errors.shift * factor,
        gain=errors.gain * factor,
    )


def nonfinite_codes(values: Array) -> NDArray[np.int8]:
    """Per element: 0 finite, 1 NaN, 2 +Inf, 3 -Inf (a complex infinity is 2)."""
    if values.dtype.kind in "iub":
        return np.zeros(values.shape, np.int8)
    wide = _wide(values)
    codes = np.zeros(values.shape, np.int8)
    codes[np.isnan(wide)] = 1
    infinite = np.isinf(wide) & ~np.isnan(wide)
    codes[infinite] = 2
    if wide.dtype.kind == "f":
        codes[infinite & (wide < 0)] = 3
    return codes


def nonfinite_mismatches(values: Array, codes: NDArray[np.int8] | None) -> int:
    """Number of elements whose kind (finite, NaN, +Inf, -Inf) differs; no codes: all finite."""
    return int(np.count_nonzero(nonfinite_codes(values) != (0 if codes is None else codes)))


def discrete_mismatches(
    values: Array, expected: Array, unstable: NDArray[np.bool_] | None = None
) -> int:
    """Number of elements that differ, not counting those marked in `unstable`."""
    different = values != expected
    if unstable is not None:
        different = different & ~unstable
    return int(np.count_nonzero(different))


def _wide(values: Array) -> Array:
    return np.asarray(values, dtype=np.complex128 if values.dtype.kind == "c" else np.float64)


def _peak(magnitude: Array) -> float:
    return float(magnitude.max()) if magnitude.size else 0.0


def _rms(magnitude: Array) -> float:
    """Root mean square, scaled by the largest so that no square overflows or vanishes."""
    largest = _peak(magnitude)
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    scaled = magnitude / largest
    return largest * float(np.sqrt(np.dot(scaled, scaled) / scaled.size))


def _signed_means(error: Array, expected: Array, size: float) -> tuple[float, float]:
    """Mean of the error, and of its product with the truth, whose RMS is `size`."""
    if not error.size:
        return 0.0, 0.0
    if error.dtype.kind == "c":
        error, expected = error.view(np.float64), expected.view(np.float64)
    largest = _peak(np.abs(error))
    if largest == 0.0 or not np.isfinite(largest):
        return 0.0, 0.0
    scaled = error / largest
    gain = float(np.dot(scaled, expected / size)) / error.size if size > 0 else 0.0
    return largest * float(scaled.mean()), largest * gain


def _pooled_rms(parts: list[tuple[int, float]]) -> float:
    parts = [(count, rms) for count, rms in parts if count]
    largest = max((rms for _, rms in parts), default=0.0)
    if largest == 0.0 or not np.isfinite(largest):
        return largest
    total = sum(count * (rms / largest) ** 2 for count, rms in parts)
    return largest * float(np.sqrt(total / sum(count for count, _ in parts)))
