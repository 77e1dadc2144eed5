"""The noise floor of a graph in half precision, against the truth of the model.

The truth stays that of the user's model. The lanes become evaluations of the
half-precision graph: as it is, with weights moved by one unit in the last place
of the half type, with inputs moved by as much. Since artifact and floor then
come from the same rewritten graph, a fault of the rewriting would be in both
and pass; `rounding` looks for one with an estimate that does not use that
graph. docs/precision.md tells how its limits were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConversionError
from ..exporter.graph import Graph
from ..progress import Progress
from .agreement import stopped
from .cases import Case
from .compare import errors_of, nonfinite_codes
from .detections import Rows, absorb
from .expected import CaptureCheck, Expected, Reference
from .interpreter import AS_CAPTURED, Lane, LaneError, Policy
from .lanes import LaneRunner
from .rounding import RoundingCheck, count_mismatches, more_policies, overflow_is_genuine, policies
from .sequences import unstable_elements
from .verdict import EXTREME_KINDS, Noise, unit_roundoff

__all__ = ["HALF_DTYPES", "lowered_reference"]

Arrays = Mapping[str, NDArray[Any]]
Lanes = Mapping[Policy, Arrays]

HALF_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}

_PROBE_KEYS = 2

# Why a case that rounding does not explain is left open.
_JUMPS = "{} jumps here"
_DOUBT = {"tiny": "values are below the normal numbers of {} here"}


def lowered_reference(reference: Reference, graph: Graph, progress: Progress) -> Reference:
    """`reference` with the noise floor of the half-precision `graph`.

    Its `capture` does not pass where `graph` is farther from the truth than half
    arithmetic explains.

    Args:
        reference: of the captured graph.
        graph: from `exporter.precision.lower_precision` on that graph.
        progress: gets one step per case.

    Raises:
        ConversionError: torch cannot evaluate the half-precision graph.
    """
    dtype = HALF_DTYPES[graph.precision]
    if reference.random:
        return replace(reference, dtype=dtype)
    work = _Work(reference, graph, dtype)
    with progress.stage(f"reference in {dtype}", len(reference.cases)) as step:
        for group in work.groups():
            work.add(group)
            step.advance(len(group))
    return work.finished()


class _Work:
    """The making of one reference in half precision."""

    def __init__(self, reference: Reference, graph: Graph, dtype: str) -> None:
        if reference.graph is None:
            raise ValueError("the reference does not say which graph it is of")
        self._reference = reference
        self._dtype = dtype
        self._captured = reference.graph
        self._full, self._half = LaneRunner(reference.graph), LaneRunner(graph)
        self._expected: dict[str, dict[str, Expected]] = {}
        self._check = RoundingCheck(dtype)
        self._rows: dict[str, dict[str, Rows]] = {}
        self._costs: dict[str, tuple[float, str]] = {}
        discrete = any(e.is_discrete for e in next(iter(reference.expected.values())).values())
        self._estimates = policies(dtype, discrete=discrete)
        self._lanes = _half_policies(dtype, discrete=discrete)

    def groups(self) -> Any:
        lanes = len(self._estimates) + len(self._lanes)
        return self._half.groups(self._reference.cases, lanes)

    def add(self, group: Sequence[Case]) -> None:
        """Evaluate some cases."""
        half = self._run(self._half, self._lanes, group)
        full = self._run(self._full, self._estimates, group)
        for case in group:
            known = self._reference.expected[case.name]
            if self._reference.detections:
                for lanes in (half[case.name], full[case.name]):
                    self._absorb(case.name, lanes)
            self._expected[case.name] = {
                name: self._expect(name, case, entry, half[case.name], full[case.name])
                for name, entry in known.items()
            }

    def _absorb(self, case: str, lanes: dict[Policy, Arrays]) -> None:
        """Put the rows of detections as the truth has them; changes `lanes`."""
        truth = {name: entry.truth for name, entry in self._reference.expected[case].items()}
        known = self._rows.get(case, self._reference.rows[case])
        aligned, self._rows[case] = absorb(
            self._reference.detections, truth, list(lanes.values()), known
        )
        lanes.update(zip(lanes, map(dict, aligned), strict=True))

    def finished(self) -> Reference:
        outcome = CaptureCheck()
        if self._reference.tolerance_reason is None:
            self._look_again()
            outcome = self._check.outcome()
        notes = (
            f"{name}: {self._dtype} costs {share:.2g} of the output's RMS at worst (case {case}); "
            f"the noise floor is that of {self._dtype}"
            for name, (share, case) in self._costs.items()
        )
        return replace(
            self._reference,
            expected=self._expected,
            rows=self._rows,
            dtype=self._dtype,
            capture=outcome if self._reference.capture.passed else self._reference.capture,
            notes=(*self._reference.notes, *notes),
        )

    def _look_again(self) -> None:
        """Estimate suspects with more evaluations, and mark those that stay suspects."""
        suspects = self._check.suspects()
        cases = {case.name: case for _, case in suspects}
        full = self._run(self._full, more_policies(self._dtype), list(cases.values()))
        if self._reference.detections:
            for name, lanes in full.items():
                self._absorb(name, lanes)
        for output, case in suspects:
            truth = self._expected[case.name][output].truth
            errors = [errors_of(values[output], truth) for values in full[case.name].values()]
            self._check.add_estimates(output, case, errors)
        for output, case in self._check.suspects():
            entry = replace(
                self._expected[case.name][output],
                doubt=_DOUBT.get(case.kind, _JUMPS).format(self._dtype),
            )
            self._expected[case.name][output] = entry

    @staticmethod
    def _run(
        runner: LaneRunner, policies: Sequence[Policy], group: Sequence[Case]
    ) -> dict[str, dict[Policy, Arrays]]:
        lanes = [Lane(case.name, policy, case.inputs) for case in group for policy in policies]
        results: dict[str, dict[Policy, Arrays]] = {case.name: {} for case in group}
        for lane, result in runner.run(lanes, {case.name: case for case in group}):
            if isinstance(result, LaneError):
                problem = stopped(next(c for c in group if c.name == lane.case), result)
                raise ConversionError(
                    f"the half-precision program cannot be evaluated: {problem}",
                    hint="please report this model; --precision fp32 avoids it",
                ) from result
            results[lane.case][lane.policy] = result
        return results

    def _expect(self, name: str, case: Case, known: Expected, half: Lanes, full: Lanes) -> Expected:
        plain = half[AS_CAPTURED][name]
        lanes = [values[name] for values in half.values()]
        estimates = [values[name] for values in full.values()]
        if known.unstable is not None:
            wrong, stable, unstable = count_mismatches(plain, known.truth, estimates)
            if case.noise not in ("constant", "exact"):  # equal values: one rounding decides all
                self._check.add_discrete(name, case, wrong, stable)
            unstable |= unstable_elements(known.truth, lanes)
            return replace(known, unstable=unstable)
        codes = known.codes if known.codes is not None else np.zeros(known.shape, np.int8)
        noise = Noise(known.noise.signal, tuple(errors_of(v, known.truth) for v in lanes))
        if any((nonfinite_codes(value) != codes).any() for value in lanes):
            if not overflow_is_genuine(self._captured, case.inputs, self._dtype):
                self._check.add_overflow(name, case)
            return replace(known, noise=noise, doubt=f"the model overflows {self._dtype} here")
        if known.codes is None:
            estimate = tuple(errors_of(v, known.truth) for v in estimates)
            self._check.add_float(name, case, replace(noise, lanes=estimate), noise.lanes[0])
        if case.kind not in EXTREME_KINDS and noise.signal.rms > 0:
            share = noise.lanes[0].rms / noise.signal.rms
            self._costs[name] = max(self._costs.get(name, (0.0, "")), (share, case.name))
        return replace(known, noise=noise)


def _half_policies(dtype: str, *, discrete: bool) -> tuple[Policy, ...]:
    """Evaluations of the half-precision graph."""
    # Inputs at the border are float32 as a rule: one unit of the half type is many of theirs.
    ulps = unit_roundoff(dtype) / unit_roundoff("float32")
    probes = (
        Policy("probe", False, 1, ulps, 1, 100 + key, sign)
        for key in range(_PROBE_KEYS if discrete else 0)
        for sign in (1, -1)
    )
    return (AS_CAPTURED, Policy("weights", weights=1), Policy("inputs", inputs=ulps), *probes)
