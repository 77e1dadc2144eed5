"""How far a value is from the truth, in floors of that value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cases import Case
from ..compare import errors_of, nonfinite_codes, nonfinite_mismatches, signal_of
from ..expected import Reference
from ..judging import Finding, judge_runs
from ..verdict import FULL_RULE, HALF_RULE, Noise, judge_kind

__all__ = ["Distance", "distance", "judged_outputs"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Distance:
    """`ratio` is the larger of peak and RMS error in floors, `severity` that over its limit."""

    ratio: float
    severity: float

    @property
    def within(self) -> bool:
        return self.severity <= 1


EQUAL = Distance(0.0, 0.0)
WRONG = Distance(float("inf"), float("inf"))


def distance(value: Array, truth: Array, lanes: Sequence[Array], half: str | None) -> Distance:
    """How far `value` is from `truth`, by the rule that outputs are judged by.

    Args:
        value: what the artifact computed.
        truth: float64, or integers and booleans as they are.
        lanes: evaluations that are as good as any, whose errors make the floor.
        half: "float16" or "bfloat16" where the artifact computes in it.
    """
    if value.shape != truth.shape:
        return WRONG
    if not value.size:
        return EQUAL
    if value.dtype.kind in "iub" or truth.dtype.kind in "iub":
        loose = np.zeros(truth.shape, np.bool_)
        for lane in lanes:
            loose |= lane != truth
        return WRONG if bool(((value != truth) & ~loose).any()) else EQUAL
    if nonfinite_mismatches(value, nonfinite_codes(lanes[0] if lanes else truth)):
        return WRONG
    rule = FULL_RULE if half is None else HALF_RULE
    dtype = half or "float32"
    noise = Noise(signal_of(truth), tuple(errors_of(lane, truth) for lane in lanes))
    ((ratios, _),) = judge_kind([noise], [errors_of(value, truth)], dtype, rule=rule)
    return Distance(max(ratios.peak, ratios.rms), ratios.severity)


def judged_outputs(
    outputs: Sequence[Any], reference: Reference, case: Case, values: Mapping[str, Array]
) -> list[Finding]:
    """The findings on one case, whose kind's noise counts as it does in a report."""
    besides = {
        case.kind: {
            output.name: tuple(
                reference.expected[other.name][output.name].noise
                for other in reference.cases
                if other.kind == case.kind and other.name != case.name
            )
            for output in outputs
        }
    }
    alone = replace(reference, cases=(case,), besides=besides)
    findings = judge_runs(outputs, alone, [case], lambda tried, reading: (values, None))
    return [finding for finding in findings if finding.case.name == case.name]
