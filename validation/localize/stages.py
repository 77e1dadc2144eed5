"""By which stage a fault came in: each form of the model is run on the failing case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ...errors import IsomorphError, first_line
from ...exporter.graph import Graph
from ...targets.base import Session
from ...targets.watching import Stage, Trail
from ..cases import Case
from ..expected import Reference
from ..interpreter import AS_CAPTURED, Lane, LaneError
from ..judging import Finding
from ..lanes import LaneRunner
from ..parity import run_case
from ..report.localization import StageFigure
from ..verdict import judge_kind
from .measuring import judged_outputs

__all__ = ["figures", "first_wrong"]

Arrays = Mapping[str, NDArray[Any]]


def figures(
    graph: Graph, reference: Reference, case: Case, trail: Trail | None, session: Session
) -> tuple[StageFigure, ...]:
    """A figure for each stage, in the order in which a model passes them."""
    return tuple(_figures(graph, reference, case, trail, session))


def _figures(
    graph: Graph, reference: Reference, case: Case, trail: Trail | None, session: Session
) -> Iterator[StageFigure]:
    yield _eager(graph, reference, case)
    captured = reference.graph or graph
    yield _program("exported program", captured, graph, reference, case)
    if trail is not None:
        yield _program("legalised", trail.graph, graph, reference, case)
        for stage in trail.stages:
            yield _opened(stage, graph, reference, case)
    values, problem = run_case(session, case)
    note = "" if problem is None else problem.reason
    yield _figure("runtime", judged(graph, reference, case, values), note)


def first_wrong(stages: Iterable[StageFigure]) -> str:
    """Name of the first stage from which on the outputs are wrong."""
    found = "runtime"
    for stage in reversed(list(stages)):
        if stage.passed:
            break
        if stage.passed is False:
            found = stage.name
    return found


def _eager(graph: Graph, reference: Reference, case: Case) -> StageFigure:
    """Eager's own errors are the first lane of each output."""
    peak = rms = None
    for spec in graph.outputs:
        expected = reference.expected[case.name][spec.name]
        if expected.is_measured and expected.noise.lanes:
            dtype = reference.dtype or spec.dtype
            noise, mine = [expected.noise], [expected.noise.lanes[0]]
            ((ratios, _),) = judge_kind(noise, mine, dtype, rule=reference.rule)
            peak, rms = max(peak or 0.0, ratios.peak), max(rms or 0.0, ratios.rms)
    return StageFigure("eager", True, peak, rms)


def _program(
    name: str, program: Graph, graph: Graph, reference: Reference, case: Case
) -> StageFigure:
    try:
        values = LaneRunner(program).run_one(Lane(case.name, AS_CAPTURED, case.inputs))
    except Exception as error:  # noqa: BLE001 - a figure that cannot be had is told
        return StageFigure(name, None, note=first_line(error))
    if isinstance(values, LaneError):
        return StageFigure(name, None, note=str(values))
    return _figure(name, judged(graph, reference, case, values), "")


def _opened(stage: Stage, graph: Graph, reference: Reference, case: Case) -> StageFigure:
    try:
        with stage.open() as session:
            values, problem = run_case(session, case)
    except IsomorphError as error:
        return StageFigure(stage.name, None, note=error.message)
    note = "" if problem is None else problem.reason
    return _figure(stage.name, judged(graph, reference, case, values), note)


def judged(
    graph: Graph, reference: Reference, case: Case, values: Arrays | None
) -> Sequence[Finding]:
    """Findings on a stage's outputs; none where it gave none."""
    return [] if values is None else judged_outputs(graph.outputs, reference, case, values)


def _figure(name: str, findings: Sequence[Finding], note: str) -> StageFigure:
    if not findings:
        return StageFigure(name, False if note else None, note=note)
    ratios = [f.ratios for f in findings if f.ratios is not None]
    wrong = [f.reason for f in findings if f.verdict == "fail"]
    return StageFigure(
        name,
        not wrong,
        max((r.peak for r in ratios), default=None),
        max((r.rms for r in ratios), default=None),
        note or (wrong[0] if wrong and not ratios else ""),
    )
