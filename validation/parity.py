"""Runs the cases on a session and judges what comes out against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingRequirementError, UnverifiableError
from ..exporter.graph import Graph
from ..progress import Progress, Silent
from ..targets.base import Evidence, Session
from .arrays import dtype_name, to_numpy
from .cases import Case
from .expected import Reference
from .findings import report_of, shown_shape
from .judging import Problem, judge_runs
from .report.model import OutputReport, Report

__all__ = ["as_given", "judge", "run_case", "unverified"]

Arrays = Mapping[str, NDArray[Any]]


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
    with progress.stage("parity", len(reference.cases)) as step:
        findings = judge_runs(
            graph.outputs,
            reference,
            reference.cases,
            lambda case, reading: run_case(session, case, reading),
            readings=getattr(session, "readings", ()) or ("",),
            declared={spec.name: spec.dtype for spec in session.outputs},
            done=step.advance,
        )
    return report_of(graph.outputs, reference, session.evidence, findings)


def run_case(
    session: Session, case: Case, reading: str = ""
) -> tuple[Arrays | None, Problem | None]:
    """Outputs of the session, or why there are none."""
    arrays = {name: as_given(to_numpy(value)) for name, value in case.inputs.items()}
    how = {"reading": reading} if reading else {}
    try:
        return session.run(arrays, **how), None
    except UnverifiableError as error:
        return None, Problem("unverified", error.message)
    except MissingRequirementError:
        raise
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything
        message = (str(error).splitlines() or [""])[0]
        return None, Problem("fail", f"the artifact raises {type(error).__name__}: {message}")


def as_given(array: NDArray[Any]) -> NDArray[Any]:
    """bfloat16 goes into a session as float32, see `Session`."""
    return array.astype(np.float32) if dtype_name(array) == "bfloat16" else array
