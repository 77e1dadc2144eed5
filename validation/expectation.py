"""One output in one case: from the evaluations that were made to what must come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exporter.signature import TensorSpec
from .arrays import Shelf
from .compare import Signal, errors_of, nonfinite_codes, signal_of
from .expected import Expected
from .interpreter import AS_CAPTURED, TRUTH, Policy
from .sequences import unstable_elements
from .verdict import Noise, unit_roundoff

__all__ = ["NOISY", "expect", "is_discrete"]

# Names of the policies whose errors make the floor.
NOISY = ("weights", "inputs", "values")

Array = NDArray[Any]
Lanes = Mapping[Policy, Array]

# Where float64 takes other decisions than float32 (a float that is rounded to an index), every
# float32 evaluation agrees and only the truth is elsewhere: this share of the output away, and this
# many times farther than the float32 evaluations are from each other. Then eager is the truth.
_ELSEWHERE_SHARE = 0.01
_ELSEWHERE_TIMES = 64.0


def is_discrete(array: Array) -> bool:
    """Whether an output holds integers or booleans, which match exactly or not at all."""
    return array.dtype.kind in "iub"


def expect(
    spec: TensorSpec, eager: Array, lanes: Lanes, shelf: Shelf, *, decides: bool
) -> tuple[Expected, str | None]:
    """What must come out, and a note for the report if there is something to tell.

    Args:
        spec: the output's.
        eager: the eager model's values.
        lanes: the captured program's values under each policy, same shape.
        shelf: where the truth is kept.
        decides: the graph makes decisions, which may differ in float64; where it makes none,
            float32 that agrees with itself and not with float64 has lost digits to cancellation.
    """
    if is_discrete(eager):
        return _expect_discrete(spec, eager, lanes, shelf), None
    return _expect_float(spec, eager, lanes, shelf, decides)


def _expect_discrete(spec: TensorSpec, eager: Array, lanes: Lanes, shelf: Shelf) -> Expected:
    unstable = unstable_elements(eager, lanes.values())
    return Expected(
        spec.dtype,
        eager.shape,
        shelf.keep(eager),
        Noise(Signal(eager.size, 0.0, 0.0), ()),
        unstable=unstable,
    )


def _expect_float(
    spec: TensorSpec, eager: Array, lanes: Lanes, shelf: Shelf, decides: bool
) -> tuple[Expected, str | None]:
    noisy = [v for policy, v in lanes.items() if policy.name in NOISY]
    truth, note = lanes.get(TRUTH, eager), None
    if decides and TRUTH in lanes and _is_elsewhere(truth, eager, noisy):
        truth = eager
        note = (
            f"{spec.name}: float64 takes other decisions than float32 (a value that is rounded "
            f"to an index, or the like), so float32 eager is the truth where they differ"
        )
    if AS_CAPTURED in lanes:
        noisy = [lanes[AS_CAPTURED], *noisy]
    kept = shelf.keep(truth.astype(np.complex128 if truth.dtype.kind == "c" else np.float64))
    codes = nonfinite_codes(eager)
    return Expected(
        spec.dtype,
        eager.shape,
        kept,
        Noise(signal_of(kept), tuple(errors_of(v, kept) for v in (eager, *noisy))),
        codes=codes if codes.any() else None,
        intrinsic=bool(np.array_equal(codes, nonfinite_codes(kept))),
    ), note


def _is_elsewhere(truth: Array, eager: Array, lanes: Sequence[Array]) -> bool:
    """Whether float32 evaluations agree with each other but not with float64."""
    size, apart = signal_of(truth).rms, errors_of(eager, truth).rms
    if apart <= _ELSEWHERE_SHARE * size or not lanes:
        return False
    among = max(errors_of(lane, eager).rms for lane in lanes)
    return apart > _ELSEWHERE_TIMES * max(among, unit_roundoff("float32") * size)
