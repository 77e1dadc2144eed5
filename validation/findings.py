"""From what the runs of an artifact showed, output by output, to the report on it.

Shipped as it stands in packages that are checked on a device: numpy and the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .judging import Finding, OutputLike, distance
from .report.model import CaseReport, KindReport, OutputReport, PooledReport, Report
from .verdict import (
    EXTREME_KINDS,
    OWN_KINDS,
    TOLERANCE,
    Ratios,
    Verdict,
    over_cases,
    over_outputs,
)

if TYPE_CHECKING:
    from ..targets.evidence import Evidence
    from .expected import Reference

__all__ = ["ReportedLike", "report_of", "shown_shape"]


class ReportedLike(OutputLike, Protocol):
    """An output of a report: `shape` holds sizes, and dims that have a `name`."""

    @property
    def shape(self) -> tuple[Any, ...]: ...


def report_of(
    specs: Sequence[ReportedLike],
    reference: Reference,
    evidence: Evidence,
    findings: Sequence[Finding],
) -> Report:
    """The report on all outputs; a failed capture check outweighs them."""
    outputs = tuple(
        _output_report(spec, [f for f in findings if f.output == spec.name]) for spec in specs
    )
    verdict = over_outputs([output.verdict for output in outputs])
    if not reference.capture.passed:
        verdict = "fail"
    notes = list(reference.notes)
    if reference.tolerance_reason is not None:
        notes.append(
            f"float64 is impossible ({reference.tolerance_reason}): compared with the fixed "
            f"tolerance for each dtype, such as {TOLERANCE['float32']:g} of RMS for float32"
        )
    notes += [f"random operator: {name}" for name in reference.random]
    return Report(
        verdict=verdict,
        reason=_reason(verdict, outputs, reference),
        evidence=evidence,
        method=_method(reference),
        rule=reference.rule,
        outputs=outputs,
        cases=tuple(_case_reports(findings)),
        capture=reference.capture,
        notes=tuple(notes),
    )


def _method(reference: Reference) -> str:
    if reference.random:
        return "none"
    return "float64" if reference.tolerance_reason is None else "tolerance"


def _output_report(spec: ReportedLike, findings: Sequence[Finding]) -> OutputReport:
    verdict = over_cases([(f.case.kind, f.verdict) for f in findings if not f.empty])
    if verdict == "pass" and any(map(_unknown_on_usual_values, findings)):
        verdict = "unverified"
    # What earned nothing (zeros, whose floor is next to none) is told apart and is not the figure.
    judged = [f for f in findings if f.verdict != "unverified"] or findings
    worst = max(judged, key=lambda f: (f.verdict == "fail", f.severity), default=None)
    ratios = [f.ratios for f in judged if f.ratios is not None]
    reason = ""
    if worst is not None and verdict == "fail":
        reason = f"{worst.reason} on case {worst.case.name} ({worst.case.description})"
    elif verdict == "unverified":
        reason = _why_unverified(findings)
    return OutputReport(
        name=spec.name,
        dtype=spec.dtype,
        shape=shown_shape(spec),
        verdict=verdict,
        reason=reason,
        peak_ratio=max((r.peak for r in ratios), default=None),
        rms_ratio=max((r.rms for r in ratios), default=None),
        max_abs=worst.errors.peak if worst and worst.errors else None,
        max_rel=worst.errors.relative if worst and worst.errors else None,
        floor=worst.floor if worst else None,
        worst_case=worst.case.name if worst else None,
        mismatches=sum(f.mismatches for f in findings),
        unstable=sum(f.unstable for f in findings),
        kinds=tuple(_kind_reports(findings)),
        histogram=_histogram(findings),
    )


def _kind_reports(findings: Sequence[Finding]) -> Iterator[KindReport]:
    """One output's findings kind by kind, in the order in which the kinds were tried."""
    for kind in dict.fromkeys(f.case.kind for f in findings):
        members = [f for f in findings if f.case.kind == kind]
        verdicts = {f.verdict for f in members}
        order: tuple[Verdict, ...] = ("fail", "pass", "unverified")
        verdict = next(v for v in order if v in verdicts)
        # What earned nothing gives no figure, as in the figures of the whole output.
        judged = [f for f in members if f.verdict != "unverified"] or members
        ratios = [f.ratios for f in judged if f.ratios is not None]
        reasons = [f.reason for f in members if f.verdict == verdict and f.reason]
        yield KindReport(
            kind=kind,
            verdict=verdict,
            cases=len({f.case.key for f in members}),
            reason=reasons[0] if reasons else "",
            peak_ratio=max((r.peak for r in ratios), default=None),
            rms_ratio=max((r.rms for r in ratios), default=None),
            pooled=_pooled_report(members),
        )


def _pooled_report(findings: Sequence[Finding]) -> PooledReport | None:
    """The round that was farthest off; each case of a kind holds the same figures."""
    found = [f.pooled for f in findings if f.pooled is not None]
    if not found:
        return None
    worst = max(found, key=lambda p: p.severity)
    return PooledReport(worst.rms, worst.shift, worst.gain, worst.cases)


def _histogram(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Elements of all usual cases by their error."""
    counts = [f.histogram for f in findings if f.histogram and f.case.kind not in EXTREME_KINDS]
    return tuple(sum(column) for column in zip(*counts))  # noqa: B905 - all of one length


def _unknown_on_usual_values(finding: Finding) -> bool:
    """Another case, or another reading of the same, cannot make up for what nobody knows."""
    return finding.unknown and finding.case.kind not in EXTREME_KINDS


def _why_unverified(findings: Sequence[Finding]) -> str:
    """The reason of the first case that earned nothing, the user's own before others."""
    bare = [f for f in findings if f.reason]
    own = [f for f in bare if f.case.kind in OWN_KINDS and not f.empty]
    own = own or [f for f in bare if _unknown_on_usual_values(f)]
    if own:
        return f"{own[0].reason} (case {own[0].case.name}: {own[0].case.description})"
    return bare[0].reason if bare else "no case was run"


def _case_reports(findings: Sequence[Finding]) -> Iterator[CaseReport]:
    by_case: dict[str, list[Finding]] = {}
    for finding in findings:
        by_case.setdefault(finding.case.name, []).append(finding)
    for members in by_case.values():
        verdict = over_outputs([f.verdict for f in members])
        ratios = [f.ratios for f in members if f.ratios is not None]
        case = members[0].case
        yield CaseReport(
            name=case.name,
            kind=case.kind,
            generator=case.generator,
            description=case.description,
            verdict=verdict,
            reason=next((f"{f.output}: {f.reason}" for f in members if f.verdict == verdict), "")
            if verdict != "pass"
            else "",
            peak_ratio=max((r.peak for r in ratios), default=None),
            rms_ratio=max((r.rms for r in ratios), default=None),
        )


def _reason(verdict: Verdict, outputs: Sequence[OutputReport], reference: Reference) -> str:
    """One sentence that names the worst output."""
    if reference.capture.reason is not None:
        return reference.capture.reason
    if not outputs:
        return "the model has no output to compare"
    if verdict != "pass":
        bad = [o for o in outputs if o.verdict == verdict]
        worst = max(bad, key=lambda o: (o.peak_ratio or 0.0, o.mismatches))
        return f"{worst.name}: {worst.reason}"
    floats = [o for o in outputs if o.peak_ratio is not None and o.rms_ratio is not None]
    if not floats:
        return f"every element is equal in {len(reference.cases)} cases"
    rule = reference.rule
    worst = max(
        floats, key=lambda o: Ratios(o.peak_ratio or 0.0, o.rms_ratio or 0.0, rule).severity
    )
    ratios = Ratios(worst.peak_ratio or 0.0, worst.rms_ratio or 0.0, rule)
    return f"{worst.name}, the farthest output, is {distance(ratios, reference)}"


def shown_shape(spec: ReportedLike) -> tuple[int | str, ...]:
    """A shape with the names of dynamic dims."""
    return tuple(size if isinstance(size, (int, str)) else str(size.name) for size in spec.shape)
