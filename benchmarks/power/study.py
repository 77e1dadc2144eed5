"""One architecture: export it, break the file in many ways, and see who notices."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from isomorph.errors import IsomorphError, UnverifiableError
from isomorph.exporter.source import Request, open_source
from isomorph.progress import Silent
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import parity
from isomorph.validation.arrays import to_numpy
from isomorph.validation.checking import make_reference
from isomorph.validation.judging import Finding, judge_runs
from isomorph.validation.report import Report
from numpy.typing import NDArray

from .architectures import ARCHITECTURES
from .correct import EagerSession, correct_artifacts
from .faults import GRADED, KINDS, Fault, inject
from .locating import Locator
from .results import CorrectRow, FaultRow, Result
from .rules import accepted_by
from .sizes import Yardstick

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "models"))
from small_nets import awake

__all__ = ["Extent", "study"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Extent:
    """How much is done for each architecture.

    places: of each kind of fault; graded: of kinds whose size is drawn. locate: detected faults
    to localise. formats: besides ONNX, for false alarms. kinds: None for all.
    """

    places: int = 1
    graded: int = 5
    locate: int = 3
    formats: tuple[str, ...] = ("openvino", "coreml")
    kinds: tuple[str, ...] | None = None


def study(name: str, extent: Extent) -> Result:
    """Everything about one architecture."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = _Study(name, extent, Path(folder)).run()
    return replace(found, seconds=time.perf_counter() - start)


class _Study:
    def __init__(self, name: str, extent: Extent, folder: Path) -> None:
        self._name, self._extent, self._folder = name, extent, folder
        architecture = ARCHITECTURES[name]
        torch.manual_seed(0)
        source = open_source(awake(architecture.make()), Request(inputs=architecture.inputs))
        self._graph, self._module = source.capture.graph, source.module
        self._target = OnnxTarget()
        self._path = self._target.convert(self._graph, OnnxOptions(), folder, "model").path
        self._reference = make_reference(source.capture, source.module, (), Silent())
        self._inputs = {
            case.name: {n: to_numpy(v.contiguous()) for n, v in case.inputs.items()}
            for case in self._reference.cases
        }
        # What other tools feed: one random input.
        self._one = next(c.name for c in self._reference.cases if c.kind == "normal")
        self._eager = EagerSession(self._module, self._graph).run(self._inputs[self._one])
        self._problems: list[str] = []

    def run(self) -> Result:
        data = self._path.read_bytes()
        correct = tuple(self._correct())
        with self._target.open(self._path) as session:
            findings = self._findings(session)
        yardstick = Yardstick(data, self._reference, findings, self._inputs)
        faults, refused = self._faults(data, yardstick)
        return Result(
            self._name, tuple(faults), correct, yardstick.gap(), refused, 0.0, tuple(self._problems)
        )

    # Correct artifacts

    def _correct(self) -> Any:
        found = correct_artifacts(
            self._graph, self._module, self._path, self._folder, self._extent.formats
        )
        for maker, opened in found:
            if isinstance(opened, str):
                self._problems.append(f"{maker}: {opened}")
                continue
            with opened as session:
                report = parity.judge(self._graph, self._reference, session)
                rules = self._others(session)
            peak, rms = _ratios(report)
            yield CorrectRow(
                self._name,
                maker,
                report.verdict,
                peak,
                rms,
                len(report.cases) * len(report.outputs),
                report.reason,
                rules,
            )

    def _others(self, session: Any) -> dict[str, bool]:
        readings = getattr(session, "readings", ()) or ("",)
        how = {"reading": readings[0]} if readings[0] else {}
        try:
            got = session.run(self._inputs[self._one], **how)
        except UnverifiableError:
            return {}  # nobody can tell what comes out, so no rule is asked
        except IsomorphError:
            got = None
        return accepted_by(got, self._eager)

    def _findings(self, session: Any) -> list[Finding]:
        return judge_runs(
            self._graph.outputs,
            self._reference,
            self._reference.cases,
            lambda case, reading: parity.run_case(session, case, reading),
            declared={spec.name: spec.dtype for spec in session.outputs},
        )

    # Faulted files

    def _faults(self, data: bytes, yardstick: Yardstick) -> tuple[list[FaultRow], int]:
        rows: list[FaultRow] = []
        refused = 0
        detected: list[tuple[int, Fault, Report]] = []
        for kind in self._extent.kinds or tuple(KINDS):
            limit = self._extent.graded if kind in GRADED else self._extent.places
            for fault in inject(data, self._name, kind, limit):
                made = self._judged(fault, yardstick)
                if made is None:
                    refused += 1
                    continue
                if made[0].detected:
                    detected.append((len(rows), fault, made[1]))
                rows.append(made[0])
        self._locate(data, rows, detected)
        return rows, refused

    def _file(self, fault: Fault) -> Path:
        path = self._folder / "faulted.onnx"
        path.write_bytes(fault.data)
        return path

    def _judged(self, fault: Fault, yardstick: Yardstick) -> tuple[FaultRow, Report] | None:
        """A row; None where the runtime, or the meaning of ONNX, refuses the file."""
        try:
            size, case = yardstick.size(fault.data)
            with self._target.open(self._file(fault)) as session:
                report = parity.judge(self._graph, self._reference, session)
                rules = self._others(session)
        except (IsomorphError, RuntimeError, IndexError, ValueError) as error:
            what = str(error).strip().splitlines() or [""]
            self._problems.append(f"{fault.kind} ({fault.description}): {what[0][:120]}")
            return None
        peak, rms = _ratios(report)
        row = FaultRow(
            self._name,
            fault.kind,
            fault.operator,
            fault.node_name,
            fault.description,
            size,
            case,
            report.verdict,
            peak,
            rms,
            report.reason,
            rules,
        )
        return row, report

    def _locate(
        self, data: bytes, rows: list[FaultRow], detected: Sequence[tuple[int, Fault, Report]]
    ) -> None:
        chosen = list(detected)
        random.Random(self._name).shuffle(chosen)
        if not chosen or not self._extent.locate:
            return
        locator = Locator(self._graph, self._reference, data)
        try:
            for index, fault, report in chosen[: self._extent.locate]:
                file = self._file(fault)
                with self._target.open(file) as session:
                    outcome, summary = locator.locate(fault, report, session, file)
                rows[index] = replace(rows[index], located=outcome, summary=summary)
        finally:
            locator.close()


def _ratios(report: Report) -> tuple[float, float]:
    """The largest peak and RMS, in floors; zero where nothing is measured."""
    return (
        max((o.peak_ratio or 0.0 for o in report.outputs), default=0.0),
        max((o.rms_ratio or 0.0 for o in report.outputs), default=0.0),
    )
