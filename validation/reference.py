"""What the right answer is, and how far from it the model's own arithmetic strays.

Per case: the eager model runs once; the captured program runs in float64 (the
truth) and in float32 with noise of one unit in the last place on its weights
and on its inputs (the lanes). docs/parity.md explains why these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, first_line
from ..exporter.effects import random_operators
from ..exporter.graph import Graph
from ..exporter.signature import TensorSpec
from ..progress import Progress, Silent, Step
from .agreement import (
    DisagreementError,
    check_lanes,
    check_repeat,
    check_structure,
    rows_of_lanes,
    stopped,
    worst_case,
)
from .arrays import Shelf, to_numpy
from .cases import Case
from .compare import errors_of
from .decisions import decides
from .detections import Rows, absorb, find_groups
from .expectation import expect, is_discrete
from .expected import CaptureCheck, Expected, Reference
from .interpreter import AS_CAPTURED, TRUTH, Lane, LaneError, Policy
from .lanes import LaneRunner
from .noise import noisy_policies, probe_policies

__all__ = ["CaptureCheck", "Expected", "Reference", "compute"]

Arrays = dict[str, NDArray[Any]]

# How many lanes a case has as a rule; cases are evaluated in groups that fit into memory.
_LANES_OF_A_CASE = 4

# A kind whose cases hold fewer elements than this gets more lanes: the largest error of few numbers
# is a lottery, and so would be a floor made from two of them.
_FEW_ELEMENTS = 64
_ROUNDS, _ROUNDS_FOR_FEW = 1, 3

# Two layouts of the same input differ by rounding as long as they are this near (share of RMS).
_ROUNDING = 1e-3

# A floor above this share of the output hides faults that a user would mind: the report says so.
_WEAK_FLOOR = 1e-2


def compute(
    graph: Graph,
    eager: Callable[..., Any],
    cases: Sequence[Case],
    *,
    progress: Progress | None = None,
) -> Reference:
    """Run the eager model and the captured program on every case.

    Args:
        graph: the captured model.
        eager: the user's module; it is called through `graph.call`.
        cases: from `cases.generate`.
        progress: gets one step per case.

    Returns:
        The reference; its `capture` tells whether program and module agree.
        Where they do not, later cases may be missing.

    Raises:
        UsageError: the eager model itself rejects a case.
    """
    progress = progress or Silent()
    random = tuple(random_operators(graph.program))
    try:
        with progress.stage("reference", len(cases)) as step:
            return _Work(graph, eager, random).compute(cases, step)
    except _NoTruthError as error:
        reason = str(error)
    progress.note(f"no float64 truth: {reason}")
    with progress.stage("reference without float64", len(cases)) as step:
        return _Work(graph, eager, random, reason).compute(cases, step)


class _NoTruthError(Exception):
    """An operator cannot be evaluated in float64."""


class _Work:
    """The making of one reference."""

    def __init__(
        self,
        graph: Graph,
        eager: Callable[..., Any],
        random: tuple[str, ...],
        tolerance_reason: str | None = None,
    ) -> None:
        self._graph = graph
        self._eager = eager
        self._random = random
        self._tolerance_reason = tolerance_reason
        self._lanes = LaneRunner(graph)
        self._decides = decides(graph.program.graph_module)
        self._shelf = Shelf()
        self._cases: list[Case] = []
        self._expected: dict[str, dict[str, Expected]] = {}
        self._notes: dict[str, None] = {}
        self._groups = find_groups(
            {spec.name: spec.shape for spec in graph.outputs},
            [spec.name for spec in graph.outputs if spec.is_float],
        )
        self._rows: dict[str, dict[str, Rows]] = {}
        self._first = ""

    def compute(self, cases: Sequence[Case], step: Step) -> Reference:
        self._first = cases[0].name if cases else ""
        try:
            for group in self._lanes.groups(cases, _LANES_OF_A_CASE):
                self._compute_group(group, cases)
                step.advance(len(group))
            capture = CaptureCheck() if self._random else self._check_floats()
        except DisagreementError as error:
            capture = error.capture
        self._note_weak_floors()
        return Reference(
            cases=tuple(self._cases),
            expected=self._expected,
            capture=capture,
            random=self._random,
            tolerance_reason=self._tolerance_reason,
            notes=tuple(self._notes),
            graph=self._graph,
            detections=() if self._random else self._groups,
            rows=self._rows,
        )

    def _compute_group(self, group: Sequence[Case], cases: Sequence[Case]) -> None:
        ran = [pair for pair in map(self._run_eager, group) if pair is not None]
        for case, outputs in ran:
            check_structure(case, outputs, self._graph.outputs)
        if ran and not self._cases and not self._random:
            first, outputs = ran[0]
            check_repeat(first, outputs, self._call(first))
        lanes = [
            Lane(case.name, policy, case.inputs)
            for case, outputs in ran
            for policy in self._policies(case, outputs, cases)
        ]
        by_case: dict[str, dict[Policy, Arrays]] = {case.name: {} for case, _ in ran}
        for lane, result in self._run_lanes(lanes, {case.name: case for case, _ in ran}):
            by_case[lane.case][lane.policy] = result
        for case, eager in ran:
            outputs, mine = self._in_rows(case, eager, by_case[case.name])
            self._expected[case.name] = {
                spec.name: self._expect(spec, case, outputs, mine) for spec in self._graph.outputs
            }
            self._cases.append(case)

    def _expect(
        self, spec: TensorSpec, case: Case, outputs: Arrays, lanes: Mapping[Policy, Arrays]
    ) -> Expected:
        eager = outputs[spec.name]
        mine = {policy: values[spec.name] for policy, values in lanes.items()}
        check_lanes(case, spec.name, eager, list(mine.values()))
        expected, note = expect(spec, eager, mine, self._shelf, decides=self._decides)
        if case.masked and expected.codes is not None and (expected.codes == 1).any():
            # A runtime that has a number for what is masked wholly does no harm.
            expected = replace(expected, doubt="the model itself gives NaN here")
        if note:
            self._notes[note] = None
        return expected

    def _in_rows(
        self, case: Case, eager: Arrays, lanes: Mapping[Policy, Arrays]
    ) -> tuple[Arrays, Mapping[Policy, Arrays]]:
        """Detections in the rows of the truth: of eager, and of the lanes."""
        if not self._groups or self._random:
            return eager, lanes
        outputs, mine, self._rows[case.name] = rows_of_lanes(case, self._groups, eager, lanes)
        return outputs, mine

    def _as_truth(self, case: Case, values: Arrays) -> Arrays:
        """One more evaluation of a case with its detections in the rows of the truth."""
        truth = {name: entry.truth for name, entry in self._expected[case.name].items()}
        known = self._rows.get(case.name, {})
        (aligned,), self._rows[case.name] = absorb(self._groups, truth, [values], known)
        return dict(aligned)

    # Eager

    def _call(self, case: Case) -> Arrays:
        outputs = self._graph.call.call(self._eager, case.inputs)
        return {name: np.array(to_numpy(value), copy=True) for name, value in outputs.items()}

    def _run_eager(self, case: Case) -> tuple[Case, Arrays] | None:
        """Eager's outputs; None for values of ours that the model does not take."""
        try:
            return case, self._call(case)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            problem = error
        contiguous = {name: value.contiguous() for name, value in case.inputs.items()}
        if any(contiguous[name] is not value for name, value in case.inputs.items()):
            self._notes[
                f"case {case.name} was tried contiguous: the model itself does not take strided "
                f"input ({first_line(problem)})"
            ] = None
            return self._run_eager(replace(case, inputs=contiguous))
        what = f"{type(problem).__name__}: {first_line(problem)}"
        if case.kind not in ("data", "example", "sizes") and not self._is_first(case):
            self._notes[f"case {case.name} left out: the model itself raises {what}"] = None
            return None
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in case.inputs.items())
        raise UsageError(
            f"the model raises on case {case.name} ({case.description}; {shapes}): {what}",
            hint="give an example, or a range of sizes, that the model accepts",
        ) from problem

    def _is_first(self, case: Case) -> bool:
        """Somebody's example, or the one we made up where there is none, must run."""
        return case.name == self._first

    # Lanes

    def _policies(self, case: Case, outputs: Arrays, cases: Sequence[Case]) -> tuple[Policy, ...]:
        """The evaluations that a case needs."""
        if self._random:
            return ()
        discrete = any(is_discrete(value) for value in outputs.values()) or bool(self._groups)
        probes = probe_policies(case.noise) if discrete else ()
        if self._tolerance_reason is not None:
            return (AS_CAPTURED, *probes)
        alike = sum(other.kind == case.kind for other in cases)
        floats = [value.size * alike for value in outputs.values() if not is_discrete(value)]
        few = any(0 < size < _FEW_ELEMENTS for size in floats)
        # Moving a zero leaves it where it is: that lane would only repeat eager.
        moves = any(v.is_floating_point() and bool(v.any()) for v in case.inputs.values())
        rounds = _ROUNDS_FOR_FEW if few else _ROUNDS
        noisy = noisy_policies(case.noise, rounds, moves=moves, decides=self._decides)
        return (TRUTH, *noisy, *probes)

    def _run_lanes(
        self, lanes: Sequence[Lane], cases: Mapping[str, Case]
    ) -> Iterator[tuple[Lane, Arrays]]:
        """Every lane's outputs."""
        for lane, result in self._lanes.run(lanes, cases):
            if isinstance(result, LaneError):
                self._explain(cases[lane.case], lane, result)
            else:
                yield lane, result

    def _explain(self, case: Case, lane: Lane, error: LaneError) -> None:
        """Raise for a lane that stopped: for want of float64, or because the program cannot."""
        plain = self._lanes.run_one(replace(lane, policy=AS_CAPTURED))
        if isinstance(plain, LaneError):
            raise stopped(case, plain)
        if lane.policy.wide:
            raise _NoTruthError(str(error))
        raise stopped(case, error)

    # Judgement of the capture

    def _check_floats(self) -> CaptureCheck:
        """The worst float output of all, once every case's noise is known."""
        worst = CaptureCheck()
        kinds: dict[str, list[Case]] = {}
        for case in self._cases:
            kinds.setdefault(case.kind, []).append(case)
        for spec in self._graph.outputs:
            for members in kinds.values():
                outcome = self._check_kind(spec, members)
                if not outcome.passed:
                    return outcome
                worst = max(worst, outcome, key=lambda c: c.severity)
        return worst

    def _check_kind(self, spec: TensorSpec, members: Sequence[Case]) -> CaptureCheck:
        entries = [(case, self._expected[case.name][spec.name]) for case in members]
        if any(e.is_discrete for _, e in entries):
            return CaptureCheck()
        tolerance = self._tolerance_reason is not None
        outcome = worst_case(spec, entries, tolerance=tolerance)
        if outcome.passed or tolerance:
            return outcome
        # Two noisy lanes did not settle it: ask the program without noise as well.
        lanes = [Lane(case.name, AS_CAPTURED, case.inputs) for case in members]
        by_name = {case.name: case for case in members}
        for lane, found in self._run_lanes(lanes, by_name):
            expected = self._expected[lane.case][spec.name]
            values = self._as_truth(by_name[lane.case], found)
            plain = errors_of(values[spec.name], expected.truth)
            noise = replace(expected.noise, lanes=(*expected.noise.lanes, plain))
            self._expected[lane.case][spec.name] = replace(expected, noise=noise)
        entries = [(case, self._expected[case.name][spec.name]) for case in members]
        outcome = worst_case(spec, entries, tolerance=False)
        strided = next((case for case in members if case.name == outcome.case), None)
        if outcome.passed or strided is None or not self._take_contiguous(spec, strided):
            return outcome
        entries = [(case, self._expected[case.name][spec.name]) for case in members]
        return worst_case(spec, entries, tolerance=False)

    def _take_contiguous(self, spec: TensorSpec, case: Case) -> bool:
        """Judge a strided case by eager on contiguous input, if only rounding tells the two apart.

        torch has kernels that lose digits on channels_last images (group norm: 1e-5 for
        1e-7); that says nothing of the capture, and must not widen the floor.
        """
        contiguous = {name: value.contiguous() for name, value in case.inputs.items()}
        if all(contiguous[name] is value for name, value in case.inputs.items()):
            return False
        plain = self._as_truth(case, self._call(replace(case, inputs=contiguous)))[spec.name]
        known = self._expected[case.name][spec.name]
        strided = self._as_truth(case, self._call(case))[spec.name]
        if plain.shape != strided.shape or known.codes is not None:
            return False
        if errors_of(strided, plain).rms > _ROUNDING * known.noise.signal.rms:
            return False
        lanes = (errors_of(plain, known.truth), *known.noise.lanes[1:])
        noise = replace(known.noise, lanes=lanes)
        self._expected[case.name][spec.name] = replace(known, noise=noise)
        self._notes[
            f"{spec.name}: the eager model is less exact on strided input; case {case.name} is "
            "compared with its results on contiguous input"
        ] = None
        return True

    def _note_weak_floors(self) -> None:
        for spec in self._graph.outputs:
            worst, where = _WEAK_FLOOR, ""
            for case in self._cases:
                noise = self._expected[case.name][spec.name].noise
                for error in noise.lanes:
                    if noise.signal.rms > 0 and error.rms / noise.signal.rms > worst:
                        worst, where = error.rms / noise.signal.rms, case.name
            if where:
                self._notes[
                    f"{spec.name}: on case {where} the model's own rounding noise is {worst:.1%} "
                    f"of the output; smaller faults cannot be told from it"
                ] = None
