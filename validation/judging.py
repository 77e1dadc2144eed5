"""Judges what an artifact gave, case by case, against what must come out.

The one place where arrays become verdicts. Needs numpy and the standard library, and the modules
beside it that need no more: packages that are checked on a device carry them as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .compare import (
    Errors,
    discrete_mismatches,
    error_histogram,
    errors_of,
    nonfinite_mismatches,
)
from .detections import RowsTold, match_rows
from .pooled import POOLED_KINDS, Pooled, pool_kind
from .verdict import (
    AS_USUAL,
    EXTREME_KINDS,
    NOISE_DOMINATED,
    Floor,
    Ratios,
    Verdict,
    judge_kind,
    signal_sizes,
)

if TYPE_CHECKING:
    from .expected import Expected, Reference

    Arrays = Mapping[str, NDArray[Any]]

__all__ = ["Finding", "OutputLike", "Problem", "Tried", "TriedLike", "distance", "judge_runs"]


class OutputLike(Protocol):
    """An output that is judged: its name, and the dtype that it must have."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...


class TriedLike(Protocol):
    """A case: its name in the reference, the kind whose noise it shares, and what it tries."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def description(self) -> str: ...


_Case = TypeVar("_Case", bound=TriedLike)


@dataclass(frozen=True)
class Tried:
    """One run of a case. `name` says which run it was, `key` what the reference calls the case.

    `round` is what runs of different cases have in common: the reading, and whether repeated.
    """

    name: str
    kind: str
    description: str
    key: str
    generator: str = ""
    round: str = ""


@dataclass(frozen=True)
class Problem:
    """Why a run gave no outputs."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Finding:
    """One output of one run of a case, first as observed, then judged.

    `errors` is None where there is nothing to measure in floors. `pooled` judges the cases of its
    kind together and is the same for all of them. `unknown`: the session itself
    could not tell what its runtime computes. `histogram` counts the elements by their error, see
    `compare.error_histogram`.
    """

    case: Tried
    output: str
    verdict: Verdict
    reason: str = ""
    errors: Errors | None = None
    ratios: Ratios | None = None
    floor: Floor | None = None
    pooled: Pooled | None = None
    mismatches: int = 0
    unstable: int = 0
    empty: bool = False
    unknown: bool = False
    histogram: tuple[int, ...] = ()

    @property
    def severity(self) -> float:
        """Orders findings from harmless to worst."""
        base = {"pass": 0.0, "unverified": 0.0, "fail": 1.0}[self.verdict]
        return base + (self.ratios.severity if self.ratios else min(self.mismatches, 1))


def judge_runs(
    outputs: Sequence[OutputLike],
    reference: Reference,
    cases: Sequence[_Case],
    run: Callable[[_Case, str], tuple[Arrays | None, Problem | None]],
    *,
    readings: Sequence[str] = ("",),
    declared: Mapping[str, str] | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Run every case, compare, and judge.

    The first case is run twice in a row and once more at the end: an artifact
    that keeps state shows there.

    Args:
        outputs: those to judge, in order.
        reference: what must come out.
        cases: those to run, which the reference holds.
        run: gives a case's outputs under a reading, or why there are none.
        readings: names of the ways in which the runtime may compute; all must pass.
        declared: dtypes that the artifact says its outputs have: an array of bfloat16 values is
            float32 and does not tell.
        done: told when a case has run.
    """
    findings: list[Finding] = []
    first: dict[str, Arrays] = {}
    declared = declared or {}
    for case, repeated in _schedule(cases):
        for reading in readings:
            values, problem = _only_arrays(*run(case, reading))
            if repeated and _identical(values, first.get(reading)):
                continue
            turn = " ".join(filter(None, (repeated, reading and f"({reading})")))
            label = " ".join(filter(None, (case.name, turn)))
            made_by = getattr(case, "generator", "")
            tried = Tried(label, case.kind, case.description, case.name, made_by, turn)
            rows, told = match_rows(reference, case.name, values)
            findings += [
                _observe(
                    output,
                    tried,
                    reference,
                    rows,
                    problem,
                    declared.get(output.name),
                    told.get(output.name),
                )
                for output in outputs
            ]
            if values is not None:
                first.setdefault(reading, values)
        if not repeated:
            done()
    return _judge_floats(outputs, reference, findings)


def _schedule(cases: Sequence[_Case]) -> Iterator[tuple[_Case, str]]:
    """Cases in order; the first again at once and at the end, with what to call that."""
    for index, case in enumerate(cases):
        yield case, ""
        if index == 0:
            yield case, "(again)"
    if len(cases) > 1:
        yield cases[0], "(after the others)"


def _only_arrays(
    outputs: Arrays | None, problem: Problem | None
) -> tuple[Arrays | None, Problem | None]:
    strange = [type(v).__name__ for v in (outputs or {}).values() if not isinstance(v, np.ndarray)]
    if strange:
        return None, Problem("fail", f"its session returns {strange[0]}, no array")
    return outputs, problem


def _identical(outputs: Arrays | None, first: Arrays | None) -> bool:
    return (
        outputs is not None
        and first is not None
        and outputs.keys() == first.keys()
        and all(
            value.dtype == first[name].dtype
            and value.shape == first[name].shape
            and value.tobytes() == first[name].tobytes()
            for name, value in outputs.items()
        )
    )


def _observe(
    output: OutputLike,
    case: Tried,
    reference: Reference,
    outputs: Arrays | None,
    problem: Problem | None,
    declared: str | None,
    told: RowsTold | None,
) -> Finding:
    """Compare one output of one run; float errors are measured here and judged later."""
    expected = reference.expected[case.key][output.name]

    def fail(reason: str, mismatches: int = 0) -> Finding:
        return Finding(case, output.name, "fail", reason, mismatches=mismatches)

    if problem is not None or outputs is None:
        verdict, reason = (problem.verdict, problem.reason) if problem else ("fail", "no outputs")
        return Finding(case, output.name, verdict, reason, unknown=verdict == "unverified")
    value = outputs.get(output.name)
    if value is None:
        return fail(f"missing; the artifact returns {', '.join(outputs) or 'nothing'}")
    dtype = str(value.dtype)
    if declared == "bfloat16" and dtype == "float32":
        dtype = declared
    if dtype != output.dtype:
        return fail(f"dtype is {dtype}, not {output.dtype}")
    if value.shape != expected.shape:
        return fail(f"shape is {list(value.shape)}, not {list(expected.shape)}")
    if told is not None and told.reason:
        return Finding(case, output.name, told.verdict, told.reason, mismatches=told.wrong)
    if not value.size:
        reason = "the output has no elements here"
        return Finding(case, output.name, "unverified", reason, empty=True)
    if reference.random:
        return Finding(case, output.name, "unverified", "the model draws random numbers")
    if expected.unstable is not None:
        return _observe_discrete(output, case, expected, value, expected.unstable)
    if expected.codes is not None and not expected.intrinsic:
        reason = "the model itself overflows float32 here"
        return Finding(case, output.name, "unverified", reason)
    if expected.doubt:
        return Finding(case, output.name, "unverified", expected.doubt)
    wrong = nonfinite_mismatches(value, expected.codes)
    if wrong:
        return fail(f"{wrong} of {value.size} elements are NaN or Inf on one side only", wrong)
    if expected.codes is not None and (expected.codes == 1).any():
        return Finding(case, output.name, "unverified", "the model itself gives NaN here")
    errors = errors_of(value, expected.truth)
    counts = error_histogram(value, expected.truth)
    loose = 0 if told is None else told.excused
    return Finding(case, output.name, "pass", errors=errors, histogram=counts, unstable=loose)


def _observe_discrete(
    output: OutputLike,
    case: Tried,
    expected: Expected,
    value: NDArray[Any],
    unstable: NDArray[np.bool_],
) -> Finding:
    wrong = discrete_mismatches(value, expected.truth, unstable)
    loose = int(np.count_nonzero(unstable))
    verdict: Verdict = "pass"
    reason = ""
    if wrong:
        verdict, reason = "fail", f"{wrong} of {value.size - loose} elements differ"
    elif loose and loose == value.size:
        verdict, reason = "unverified", "every element changes under rounding noise"
    return Finding(case, output.name, verdict, reason, mismatches=wrong, unstable=loose)


def _judge_floats(
    outputs: Sequence[OutputLike], reference: Reference, findings: Sequence[Finding]
) -> list[Finding]:
    """Turn measured errors into verdicts, per output over the cases of each kind."""
    judged = list(findings)
    dtypes = {output.name: output.dtype for output in outputs}
    groups: dict[tuple[str, str], list[int]] = {}
    for index, finding in enumerate(findings):
        if finding.errors is not None:
            groups.setdefault((finding.output, finding.case.kind), []).append(index)
    usual: dict[str, Floor] = {}
    for (name, kind), members in sorted(groups.items(), key=lambda g: g[0][1] in EXTREME_KINDS):
        noise = [reference.expected[findings[i].case.key][name].noise for i in members]
        outcome = judge_kind(
            noise,
            [e for i in members if (e := findings[i].errors) is not None],
            reference.dtype or dtypes[name],
            tolerance=reference.tolerance_reason is not None,
            rule=reference.rule,
            besides=reference.besides.get(kind, {}).get(name, ()),
        )
        # One of each for every member, so the three are of one length.
        sizes = signal_sizes(noise)
        for index, size, (ratios, floor) in zip(members, sizes, outcome):  # noqa: B905
            found = replace(findings[index], ratios=ratios, floor=floor)
            judged[index] = _rule(found, size, usual.get(name), reference)
        if kind not in EXTREME_KINDS:
            known = usual.get(name, Floor(0.0, 0.0))
            usual[name] = Floor(
                max(known.peak, *(floor.peak for _, floor in outcome)),
                max(known.rms, *(floor.rms for _, floor in outcome)),
            )
        if kind in POOLED_KINDS:
            _judge_together(name, members, judged, reference, dtypes[name])
    return judged


def _judge_together(
    name: str,
    members: Sequence[int],
    judged: list[Finding],
    reference: Reference,
    dtype: str,
) -> None:
    """Judge the cases of one kind as one, each round of runs by itself; changes `judged`."""
    limits = reference.rule.pooled
    if limits is None or reference.tolerance_reason is not None:
        return
    rounds: dict[str, list[int]] = {}
    for index in members:
        rounds.setdefault(judged[index].case.round, []).append(index)
    for indices in rounds.values():
        found = [judged[index] for index in indices]
        pooled = pool_kind(
            [reference.expected[f.case.key][name].noise for f in found],
            [f.floor for f in found if f.floor is not None],
            [f.errors for f in found if f.errors is not None],
            dtype,
            limits,
            reference.rule.roundoffs,
        )
        if pooled is None:
            continue
        for index in indices:
            judged[index] = replace(judged[index], pooled=pooled)
        if pooled.within or any(f.verdict == "fail" for f in found):
            continue
        worst = max(indices, key=lambda index: judged[index].severity)
        judged[worst] = replace(judged[worst], verdict="fail", reason=pooled.reason)


def _rule(found: Finding, size: float, usual: Floor | None, reference: Reference) -> Finding:
    """The verdict on one measured output.

    `size` is the truth's RMS; `usual` the absolute floor on cases of usual
    values, known when a case of extreme ones is judged.
    """
    ratios, floor, errors = found.ratios, found.floor, found.errors
    if ratios is None or floor is None or errors is None:
        return found
    if ratios.within:
        if floor.rms > NOISE_DOMINATED * size > 0:
            share = f"{floor.rms / size:.0%}"
            reason = f"the model's own rounding noise is {share} of the output here"
            return replace(found, verdict="unverified", reason=reason)
        return replace(found, verdict="pass")
    far = distance(ratios, reference)
    if (
        usual is not None
        and Ratios(errors.peak / usual.peak, errors.rms / usual.rms, reference.rule).severity
        <= AS_USUAL
    ):
        reason = f"{far}, yet within the noise that the output has on usual values"
        return replace(found, verdict="unverified", reason=reason)
    return replace(found, verdict="fail", reason=far)


def distance(ratios: Ratios, reference: Reference) -> str:
    """How far an output is from the truth, in words."""
    unit = "noise floors" if reference.tolerance_reason is None else "units of tolerance"
    return (
        f"{_figure(ratios.peak)} {unit} off at its worst element (limit {ratios.rule.peak:g}), "
        f"{_figure(ratios.rms)} on average (limit {ratios.rule.rms:g})"
    )


def _figure(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 1000 else f"{ratio:.2g}"
