"""Runs the cases on a session and judges what comes out against the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingRequirementError, UnverifiableError
from ..exporter.graph import Graph
from ..exporter.signature import TensorSpec
from ..progress import Progress, Silent
from ..targets.base import Evidence, Session
from .arrays import dtype_name, to_numpy
from .cases import Case
from .compare import discrete_mismatches, errors_of, nonfinite_mismatches
from .expected import Expected, Reference
from .findings import Finding, distance, report_of, shown_shape
from .report.model import OutputReport, Report
from .verdict import (
    EXTREME_KINDS,
    NOISE_DOMINATED,
    Floor,
    Ratios,
    Verdict,
    judge_kind,
    signal_sizes,
)

__all__ = ["judge", "unverified"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Problem:
    """Why a run gave no outputs."""

    verdict: Verdict
    reason: str


def unverified(graph: Graph, evidence: Evidence, reason: str) -> Report:
    """The report on an artifact that nobody ran: never a pass."""
    outputs = tuple(
        OutputReport(spec.name, spec.dtype, shown_shape(spec), "unverified", reason)
        for spec in graph.outputs
    )
    return Report("unverified", reason, evidence, outputs=outputs)


def judge(
    graph: Graph,
    reference: Reference,
    session: Session,
    *,
    progress: Progress | None = None,
) -> Report:
    """Run every case of the reference on the session and compare.

    The first case is run twice in a row and once more at the end: an artifact
    that keeps state shows there.

    Args:
        graph: the captured model; names the outputs.
        reference: from `reference.compute`.
        session: the opened artifact.
        progress: gets one step per case.

    Raises:
        MissingRequirementError: the session lacks something on this machine.
    """
    if session.evidence.kind == "built":
        return unverified(graph, session.evidence, "the artifact was written and not run")
    progress = progress or Silent()
    declared = {spec.name: spec.dtype for spec in session.outputs}
    findings: list[Finding] = []
    first: dict[str, Arrays] = {}
    readings: Sequence[str] = getattr(session, "readings", ()) or ("",)
    with progress.stage("parity", len(reference.cases)) as step:
        for case, repeated in _schedule(reference.cases):
            for reading in readings:
                outputs, problem = _run(session, case, reading)
                if repeated and _identical(outputs, first.get(reading)):
                    continue
                label = " ".join(filter(None, (case.name, repeated, reading and f"({reading})")))
                expected = reference.expected[case.name]
                findings += [
                    _observe(
                        spec,
                        replace(case, name=label),
                        expected[spec.name],
                        outputs,
                        problem,
                        reference,
                        declared.get(spec.name),
                    )
                    for spec in graph.outputs
                ]
                if outputs is not None:
                    first.setdefault(reading, outputs)
            step.advance(0 if repeated else 1)
        findings = _judge_floats(graph, reference, findings)
    return report_of(graph, reference, session.evidence, findings)


def _schedule(cases: Sequence[Case]) -> Iterator[tuple[Case, str]]:
    """Cases in order; the first again at once and at the end, with what to call that."""
    for index, case in enumerate(cases):
        yield case, ""
        if index == 0:
            yield case, "(again)"
    if len(cases) > 1:
        yield cases[0], "(after the others)"


def _run(session: Session, case: Case, reading: str) -> tuple[Arrays | None, _Problem | None]:
    """Outputs of the session, or why there are none."""
    arrays = {name: _as_given(to_numpy(value)) for name, value in case.inputs.items()}
    how = {"reading": reading} if reading else {}
    try:
        outputs = session.run(arrays, **how)
    except UnverifiableError as error:
        return None, _Problem("unverified", error.message)
    except MissingRequirementError:
        raise
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything
        message = (str(error).splitlines() or [""])[0]
        return None, _Problem("fail", f"the artifact raises {type(error).__name__}: {message}")
    strange = [type(v).__name__ for v in outputs.values() if not isinstance(v, np.ndarray)]
    if strange:
        return None, _Problem("fail", f"its session returns {strange[0]}, no array")
    return outputs, None


def _as_given(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 goes into a session as float32, see `Session`."""
    return array.astype(np.float32) if dtype_name(array) == "bfloat16" else array


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
    spec: TensorSpec,
    case: Case,
    expected: Expected,
    outputs: Arrays | None,
    problem: _Problem | None,
    reference: Reference,
    declared: str | None,
) -> Finding:
    """Compare one output of one run; float errors are measured here and judged later.

    `declared` is the dtype that the session says the output has: an array of bfloat16
    values is float32 and does not tell.
    """

    def fail(reason: str, mismatches: int = 0) -> Finding:
        return Finding(case, spec.name, "fail", reason, mismatches=mismatches)

    if problem is not None or outputs is None:
        verdict, reason = (problem.verdict, problem.reason) if problem else ("fail", "no outputs")
        return Finding(case, spec.name, verdict, reason, unknown=verdict == "unverified")
    value = outputs.get(spec.name)
    if value is None:
        return fail(f"missing; the artifact returns {', '.join(outputs) or 'nothing'}")
    dtype = dtype_name(value)
    if declared == "bfloat16" and dtype == "float32":
        dtype = declared
    if dtype != spec.dtype:
        return fail(f"dtype is {dtype}, not {spec.dtype}")
    if value.shape != expected.shape:
        return fail(f"shape is {list(value.shape)}, not {list(expected.shape)}")
    if not value.size:
        reason = "the output has no elements here"
        return Finding(case, spec.name, "unverified", reason, empty=True)
    if reference.random:
        return Finding(case, spec.name, "unverified", "the model draws random numbers")
    if expected.unstable is not None:
        return _observe_discrete(spec, case, expected.truth, value, expected.unstable)
    if expected.codes is not None and not expected.intrinsic:
        reason = "the model itself overflows float32 here"
        return Finding(case, spec.name, "unverified", reason)
    if expected.doubt:
        return Finding(case, spec.name, "unverified", expected.doubt)
    wrong = nonfinite_mismatches(value, expected.codes)
    if wrong:
        return fail(f"{wrong} of {value.size} elements are NaN or Inf on one side only", wrong)
    if expected.codes is not None and (expected.codes == 1).any():
        return Finding(case, spec.name, "unverified", "the model itself gives NaN here")
    return Finding(case, spec.name, "pass", errors=errors_of(value, expected.truth))


def _observe_discrete(
    spec: TensorSpec,
    case: Case,
    truth: NDArray[Any],
    value: NDArray[Any],
    unstable: NDArray[np.bool_],
) -> Finding:
    wrong = discrete_mismatches(value, truth, unstable)
    loose = int(np.count_nonzero(unstable))
    verdict: Verdict = "pass"
    reason = ""
    if wrong:
        verdict, reason = "fail", f"{wrong} of {value.size - loose} elements differ"
    elif loose and loose == value.size:
        verdict, reason = "unverified", "every element changes under rounding noise"
    return Finding(case, spec.name, verdict, reason, mismatches=wrong, unstable=loose)


def _judge_floats(graph: Graph, reference: Reference, findings: Sequence[Finding]) -> list[Finding]:
    """Turn measured errors into verdicts, per output over the cases of each kind."""
    judged = list(findings)
    dtypes = {spec.name: spec.dtype for spec in graph.outputs}
    groups: dict[tuple[str, str], list[int]] = {}
    for index, finding in enumerate(findings):
        if finding.errors is not None:
            groups.setdefault((finding.output, finding.case.kind), []).append(index)
    usual: dict[str, Floor] = {}
    for (name, kind), members in sorted(groups.items(), key=lambda g: g[0][1] in EXTREME_KINDS):
        noise = [reference.expected[_key(findings[i].case)][name].noise for i in members]
        outcome = judge_kind(
            noise,
            [e for i in members if (e := findings[i].errors) is not None],
            reference.dtype or dtypes[name],
            tolerance=reference.tolerance_reason is not None,
            rule=reference.rule,
        )
        sizes = signal_sizes(noise)
        for index, size, (ratios, floor) in zip(members, sizes, outcome, strict=True):
            found = replace(findings[index], ratios=ratios, floor=floor)
            judged[index] = _rule(found, size, usual.get(name), reference)
        if kind not in EXTREME_KINDS:
            known = usual.get(name, Floor(0.0, 0.0))
            usual[name] = Floor(
                max(known.peak, *(floor.peak for _, floor in outcome)),
                max(known.rms, *(floor.rms for _, floor in outcome)),
            )
    return judged


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
        and Ratios(errors.peak / usual.peak, errors.rms / usual.rms, reference.rule).within
    ):
        reason = f"{far}, yet within the noise that the output has on usual values"
        return replace(found, verdict="unverified", reason=reason)
    return replace(found, verdict="fail", reason=far)


def _key(case: Case) -> str:
    """Name under which the reference knows a case that may be a repetition."""
    return case.name.partition(" (")[0]
