"""Does the captured program compute what the eager model does?

Eager is judged by the same rule as an artifact, against the noise of the
program's own lanes. Its own errors are no part of that floor: a branch frozen
by tracing would raise the floor above itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exporter.graph import node_origin
from ..exporter.signature import TensorSpec
from .arrays import dtype_name
from .cases import Case
from .compare import discrete_mismatches, errors_of, signal_of
from .detections import Group, Rows, absorb, align, explain
from .expectation import is_discrete
from .expected import CaptureCheck, Expected
from .interpreter import AS_CAPTURED, TRUTH, LaneError, Policy
from .sequences import unstable_elements
from .verdict import FULL_RULE, judge_kind, unit_roundoff

__all__ = [
    "DisagreementError",
    "check_lanes",
    "check_repeat",
    "check_structure",
    "rows_of_lanes",
    "stopped",
    "worst_case",
]

Arrays = Mapping[str, NDArray[Any]]

_FROZEN = "a value or branch that depends on the input was frozen when the model was captured"

# Threads may add in another order from one call to the next; state and random numbers do more.
_REPEAT_ROUNDOFFS = 64


class DisagreementError(Exception):
    """The capture is not sound; `capture` says why."""

    def __init__(
        self, problem: str, hint: str | None, case: Case | None, output: str | None = None
    ) -> None:
        super().__init__(problem)
        self.capture = CaptureCheck(
            problem, hint, float("inf"), case.name if case else None, output
        )


def check_structure(case: Case, outputs: Arrays, specs: Sequence[TensorSpec]) -> None:
    """Eager must return the outputs that were captured, with their dtypes and ranks."""
    for spec in specs:
        value = outputs.get(spec.name)
        if value is None:
            problem = f"the eager model returns no {spec.name}"
        elif dtype_name(value) != spec.dtype:
            problem = f"{spec.name} is {dtype_name(value)} in the eager model, not {spec.dtype}"
        elif value.ndim != len(spec.shape):
            problem = f"{spec.name} has {value.ndim} axes in the eager model, not {len(spec.shape)}"
        else:
            continue
        raise DisagreementError(f"{problem} (case {case.name})", _FROZEN, case, spec.name)


def check_repeat(case: Case, first: Arrays, second: Arrays) -> None:
    """The same input again must give the same result, or nothing can be compared."""
    for name, value in first.items():
        if _same(value, second[name]):
            continue
        raise DisagreementError(
            f"the model gives another {name} when it is called twice with the same input "
            f"(case {case.name})",
            "it draws random numbers or keeps state between calls: make them inputs and outputs",
            case,
            name,
        )


def check_lanes(case: Case, name: str, eager: NDArray[Any], lanes: Sequence[NDArray[Any]]) -> None:
    """Every lane has eager's shape, and integers agree wherever the lanes do.

    Floats are judged later, when the noise of all cases of a kind is known.
    """
    for lane in lanes:
        if lane.shape != eager.shape:
            raise DisagreementError(
                f"{name} has shape {list(lane.shape)} in the captured program and "
                f"{list(eager.shape)} in the eager model (case {case.name})",
                "a size was frozen when the model was captured",
                case,
                name,
            )
    if not lanes or not is_discrete(eager):
        return
    unstable = unstable_elements(lanes[0], lanes[1:])
    wrong = discrete_mismatches(eager, lanes[0], unstable)
    if wrong:
        raise DisagreementError(
            f"{wrong} of {eager.size} elements of {name} differ between the captured program "
            f"and the eager model (case {case.name})",
            _FROZEN,
            case,
            name,
        )


def rows_of_lanes(
    case: Case, groups: Sequence[Group], eager: Arrays, lanes: Mapping[Policy, Arrays]
) -> tuple[dict[str, NDArray[Any]], dict[Policy, dict[str, NDArray[Any]]], dict[str, Rows]]:
    """Detections of eager and of the lanes in the rows of the truth, and what noise does to them.

    A detection of eager that no lane has, or the reverse, is a fault of the capture.
    """
    base = lanes.get(TRUTH, eager)
    judged, others = eager, [p for p in lanes if p not in (TRUTH, AS_CAPTURED)]
    if TRUTH not in lanes and AS_CAPTURED in lanes:
        judged = lanes[AS_CAPTURED]
    aligned, rows = absorb(groups, base, [lanes[policy] for policy in others], {})
    for group in groups:
        found = align(group, judged, base)
        if found is None:
            continue
        problem = explain(group, found[1], rows[group.boxes], base, FULL_RULE.peak).reason
        if problem:
            raise DisagreementError(
                f"{problem} between the captured program and the eager model, in {group.boxes} "
                f"(case {case.name})",
                _FROZEN,
                case,
                group.boxes,
            )
    (mine, *more), rows = absorb(
        groups, base, [eager, *(lanes[p] for p in (TRUTH, AS_CAPTURED) if p in lanes)], rows
    )
    plain = [policy for policy in (TRUTH, AS_CAPTURED) if policy in lanes]
    found_lanes = dict(zip([*others, *plain], map(dict, [*aligned, *more]), strict=True))
    return dict(mine), {policy: found_lanes[policy] for policy in lanes}, rows


def stopped(case: Case, error: LaneError) -> DisagreementError:
    """The program cannot be evaluated on a case that the eager model takes."""
    origin = node_origin(error.node)
    where = ", ".join(part for part in (origin.module, origin.location) if part)
    return DisagreementError(
        f"the captured program stops on case {case.name} ({case.description}), which the eager "
        f"model takes: {error}" + (f" ({where})" if where else ""),
        "the capture holds only for inputs like the example",
        case,
    )


def worst_case(
    spec: TensorSpec, entries: Sequence[tuple[Case, Expected]], *, tolerance: bool
) -> CaptureCheck:
    """Judge one float output over the cases of one kind; the farthest case.

    With `tolerance` eager is the truth and the lane after it the program.
    """
    judged_lane = 1 if tolerance else 0
    errors = [e.noise.lanes[judged_lane] for _, e in entries]
    noise = [replace(e.noise, lanes=e.noise.lanes[1:]) for _, e in entries]
    judged = judge_kind(noise, errors, spec.dtype, tolerance=tolerance)
    index = max(range(len(judged)), key=lambda i: judged[i][0].severity)
    ratios, case = judged[index][0], entries[index][0]
    problem = (
        f"the captured program does not compute what the eager model does: {spec.name} is "
        f"{ratios.peak:.3g} noise floors off at its worst element and {ratios.rms:.3g} on average "
        f"on case {case.name} ({case.description})"
    )
    return CaptureCheck(
        None if ratios.within else problem,
        None if ratios.within else _FROZEN,
        ratios.severity,
        case.name,
        spec.name,
    )


def _same(first: NDArray[Any], second: NDArray[Any]) -> bool:
    if is_discrete(first) or first.shape != second.shape:
        return bool(np.array_equal(first, second))
    if np.array_equal(first, second, equal_nan=True):
        return True
    allowed = _REPEAT_ROUNDOFFS * unit_roundoff(dtype_name(first)) * signal_of(first).peak
    return errors_of(second, first).peak <= allowed
