"""From a failed report to the operator that is wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import IsomorphError, UsageError, first_line
from ...exporter.graph import Graph
from ...progress import Progress, Silent
from ...targets.base import Session, Target
from ...targets.watching import Stage, Tracing, Trail, Watching
from ..cases import Case
from ..expected import Reference
from ..interpreter import AS_CAPTURED
from ..report.localization import CurvePoint, Localization, StageFigure
from ..report.model import Report
from ..verdict import EXTREME_KINDS
from .choosing import before, choose, fused_region
from .converting import first_wrong_alone
from .legalised import PretendSession, same_names
from .measuring import judged_outputs
from .naming import culprit_of, operator_of, region_of, summary_of
from .reproducing import write_reproduction
from .segments import Segment
from .stages import figures, first_wrong
from .unwatched import stages_only
from .walking import Step, Walk, walk

__all__ = ["localize", "located"]

# Stages at which the file itself is right, so that only the runtime's own rewriting is left.
_BEFORE_ARTIFACT = ("exported program", "legalised")

# Stages at which a converter may be at fault, so that its operators can be tried alone.
_CONVERSION = ("converted", "optimised")


def localize(
    graph: Graph,
    reference: Reference,
    report: Report,
    session: Session,
    target: Target,
    options: Any,
    artifact: Path,
    *,
    reproduction: Path | None = None,
    case: str | None = None,
    progress: Progress | None = None,
) -> Localization:
    """Find the stage and the operator at which `artifact` leaves the truth.

    Args:
        graph: the captured graph in the artifact's precision.
        reference: what must come out.
        report: of `parity.judge`; one that fails.
        session: the opened artifact, as it is deployed.
        target, options: those that the artifact was converted with.
        artifact: the file.
        reproduction: a script's path, `NAME.py`; its arrays go beside it as `NAME.npz`.
        case: which to use; None: the worst.
        progress: told about stages.

    Raises:
        UsageError: the case is unknown.
    """
    progress = progress or Silent()
    chosen = _case(report, reference, case)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        notes: list[str] = []
        trail = None
        with progress.stage("localise: the stage", 1):
            if report.evidence.kind != "built":
                make = target.trail if isinstance(target, Tracing) else partial(stages_only, target)
                try:
                    trail = make(graph, options, artifact, Path(folder))
                except IsomorphError as error:
                    notes.append(f"the model could not be converted again: {error.message}")
            stages = figures(graph, reference, chosen, trail, session)
        search = _Search(graph, reference, chosen, session, trail, stages, notes, progress)
        found = search.run(reproduction)
        if found.culprit is None and found.stage in _CONVERSION and graph.precision == "fp32":
            return _by_converting(found, graph, chosen, target, options, reproduction, progress)
        return found


def _by_converting(
    found: Localization,
    graph: Graph,
    case: Case,
    target: Target,
    options: Any,
    reproduction: Path | None,
    progress: Progress,
) -> Localization:
    """`found` with the operator that the converter gets wrong by itself, if there is one."""
    with progress.stage("localise: operators alone"):
        alone = first_wrong_alone(graph, case, target, options)
    if alone is None:
        note = "no operator is wrong when it is converted alone (or not in the first minute)"
        return replace(found, notes=(*found.notes, note))
    culprit = operator_of(alone.segment.nodes, alone.distance.ratio)
    script = None
    if reproduction is not None:
        script = write_reproduction(reproduction, graph, alone.segment, case, alone, culprit)
    note = "found by converting operators one by one: the first that is wrong alone"
    return replace(
        found,
        culprit=culprit,
        summary=summary_of(found.stage, culprit),
        reproduction=script,
        notes=(note,),
    )


def located(
    report: Report,
    graph: Graph,
    reference: Reference,
    session: Session,
    target: Target,
    options: Any,
    artifact: Path,
    *,
    reproduction: Path | None = None,
    case: str | None = None,
    progress: Progress,
) -> Report:
    """`report` with the first wrong operator, if it fails; see `localize.localize`.

    A verdict stands whether or not its cause is found: what keeps it from being found is a note.

    Raises:
        UsageError: the case is unknown.
        OSError: the reproduction cannot be written.
    """
    if report.verdict != "fail" or not reference.capture.passed:
        return report
    _case(report, reference, case)
    try:
        return replace(
            report,
            localization=localize(
                graph,
                reference,
                report,
                session,
                target,
                options,
                artifact,
                reproduction=reproduction,
                case=case,
                progress=progress,
            ),
        )
    except OSError:  # the reproduction cannot be written
        raise
    except Exception as error:  # noqa: BLE001 - runtimes and converters may raise anything
        what = f"the fault could not be localised: {type(error).__name__}: {first_line(error)}"
        return replace(report, notes=(*report.notes, what))


def _case(report: Report, reference: Reference, name: str | None) -> Case:
    """The case asked for, or the worst of those of usual values that failed."""
    known = {case.name: case for case in reference.cases}
    if name is not None:
        if name not in known:
            raise UsageError(f"there is no case {name}", hint=f"choose from {', '.join(known)}")
        return known[name]

    def rank(case: Any) -> tuple[bool, bool, float]:
        far = max(case.peak_ratio or 0.0, case.rms_ratio or 0.0)
        return case.verdict == "fail", case.kind not in EXTREME_KINDS, far

    for found in sorted(report.cases, key=rank, reverse=True):
        # A repeated run is called "NAME (again)", a reading "NAME (reading)".
        if found.name in known or found.name.partition(" (")[0] in known:
            return known.get(found.name) or known[found.name.partition(" (")[0]]
    raise UsageError("no case was run, so there is nothing to localise")


class _Search:
    """One localisation."""

    def __init__(
        self,
        graph: Graph,
        reference: Reference,
        case: Case,
        session: Session,
        trail: Trail | None,
        stages: tuple[StageFigure, ...],
        notes: list[str],
        progress: Progress,
    ) -> None:
        self._graph = graph
        self._reference = reference
        self._case = case
        self._session = session
        self._trail = trail
        self._stages = stages
        self._stage = first_wrong(stages)
        self._notes = notes
        self._progress = progress

    def run(self, reproduction: Path | None) -> Localization:
        trail = self._trail
        if trail is None:
            self._notes.append("this format does not tell which of its values is which operator")
            return self._finished(None, ())
        with ExitStack() as stack:
            session = stack.enter_context(self._watched(trail))
            if not isinstance(session, Watching):
                self._notes.append(
                    "this format shows no values inside an artifact: only the stage is known"
                )
                return self._finished(None, ())
            graph, names = trail.graph, trail.values
            if self._stage in _BEFORE_ARTIFACT:
                graph = self._reference.graph or self._graph
                names = same_names(trail.graph, graph)
            with self._progress.stage("localise: the operator", len(names)) as step:
                found = walk(
                    graph, names, self._case, session, self._reference.dtype, done=step.advance
                )
            self._notes += found.notes
            return self._judge(found, session, graph, reproduction)

    def _watched(self, trail: Trail) -> Any:
        """A session on the first form that is wrong, as plain as shows the fault."""
        if self._stage in _BEFORE_ARTIFACT:
            return PretendSession(trail.graph, self._case, AS_CAPTURED)
        plain: Sequence[Stage] = [stage for stage in trail.stages if stage.name == "file"]
        if self._stage == "runtime" or not plain:
            return _Borrowed(self._session)
        return plain[0].open()

    def _judge(
        self, found: Walk, session: Any, graph: Graph, reproduction: Path | None
    ) -> Localization:
        curve = tuple(
            CurvePoint(index, step.node.name, _module(step), step.watched.ratio)
            for index, step in enumerate(found.steps)
        )
        step = choose(found.steps)
        if self._stage == "runtime" and self._passes(found.outputs):
            region = self._region(found, session)
            if region is not None:
                return self._finished(region_of(region), curve)
        if step is None:
            self._notes.append("no single operator leaves its floor: the error builds up")
            return self._finished(None, curve)
        inner = self._inner(step.segment)
        culprit = culprit_of(step, before(step, found.steps), inner)
        script = None
        if reproduction is not None:
            script = write_reproduction(
                reproduction, graph, step.segment, self._case, session, culprit
            )
        return self._finished(culprit, curve, script)

    def _passes(self, outputs: Any) -> bool:
        mine = {spec.name: outputs[spec.name] for spec in self._graph.outputs}
        findings = judged_outputs(self._graph.outputs, self._reference, self._case, mine)
        return all(finding.verdict != "fail" for finding in findings)

    def _region(self, found: Walk, session: Any) -> list[Step] | None:
        """The operators that a runtime computes wrongly only while nobody looks at them."""
        from ..arrays import to_numpy
        from ..parity import as_given

        steps = list(found.steps)
        names = [step.segment.value.name for step in steps]
        inputs = {k: as_given(to_numpy(v)) for k, v in self._case.inputs.items()}

        def passes(watched: Sequence[str]) -> bool:
            return self._passes(session.run_watching(inputs, watched))

        span = fused_region(names, passes)
        if span is None:
            return None
        last = min(span[1] + 1, len(steps) - 1)  # what is fused ends in a value that is seen
        return steps[span[0] : last + 1]

    def _inner(self, segment: Segment) -> Any:
        """Which of several nodes of the artifact: the first that computes other bits than the same
        node of a file that was just converted, on the same inputs. The last where none does."""
        fresh = [s for s in (self._trail.stages if self._trail else ()) if s.name != "file"]
        if self._stage != "file" or not fresh or len(segment.inner) == 1:
            return segment.value
        from .comparing import first_difference

        plain = self._trail.stages[-1] if self._trail else fresh[-1]
        return first_difference(fresh[-1], plain, segment, self._case) or segment.value

    def _finished(
        self, culprit: Any, curve: tuple[CurvePoint, ...], script: str | None = None
    ) -> Localization:
        return Localization(
            case=self._case.name,
            stage=self._stage,
            summary=summary_of(self._stage, culprit),
            stages=self._stages,
            culprit=culprit,
            curve=curve,
            reproduction=script,
            notes=tuple(dict.fromkeys(self._notes)),
        )


class _Borrowed:
    """A session that somebody else closes."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __enter__(self) -> Any:
        return self._session

    def __exit__(self, *_: object) -> None:
        return None


def _module(step: Step) -> str:
    from ...exporter.graph import node_origin

    return node_origin(step.node).module
