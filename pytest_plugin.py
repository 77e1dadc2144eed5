"""A pytest plug-in: `parity("model.pt", formats=["onnx"])` in a test fails where parity fails.

Nothing heavy is imported before a test calls the fixture.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from .exporter.result import ExportedArtifact, ExportResult
    from .validation.report import Report

__all__ = ["Parity", "parity"]

Parity = Callable[..., "ExportResult"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The folder for reports."""
    group = parser.getgroup("isomorph")
    group.addoption(
        "--parity-reports",
        metavar="DIR",
        help="write each parity report as JSON and HTML into DIR, named after its test",
    )


@pytest.fixture
def parity(request: pytest.FixtureRequest, tmp_path: Path) -> Parity:
    """Exports a model, checks each artifact, and fails the test unless all pass.

    `parity(source, formats=..., missing="fail", **options)`: source is a checkpoint's path or a
    module; options are those of `isomorph.export`. What could not be verified is a failure too
    (`require="executed"` asks for more). `max_floors={"peak": 3.0}` is a limit below the rule's.
    `missing="skip"` skips the test where this machine lacks
    a package or a device. Returns the `ExportResult`.
    """

    def run(
        source: str | Path | torch.nn.Module,
        formats: str | Sequence[str] = "onnx",
        *,
        missing: str = "fail",
        require: str = "evaluated",
        max_floors: Mapping[str, float] | None = None,
        **options: Any,
    ) -> ExportResult:
        __tracebackhide__ = True
        from .errors import IsomorphError, MissingRequirementError, UnprovenError
        from .exporter.pipeline import export

        if missing not in ("fail", "skip"):
            raise ValueError(f"missing takes fail or skip, not {missing!r}")
        if odd := set(max_floors or ()) - {"peak", "rms"}:
            raise ValueError(f"max_floors takes peak and rms, not {', '.join(sorted(odd))}")
        formats = options.pop("format", formats)
        names = [formats] if isinstance(formats, str) else list(formats)
        folder = tmp_path / "parity"
        folder.mkdir(exist_ok=True)
        ended: IsomorphError | None = None
        try:
            with _without_traces():
                result = export(source, names, output=folder, require=require, **_listed(options))
        except IsomorphError as error:
            if isinstance(error, UnprovenError):
                _attach(request, error.reports)
            ended = error
        if ended is not None:
            if missing == "skip" and isinstance(ended, MissingRequirementError):
                pytest.skip(ended.message)
            pytest.fail(_error(ended), pytrace=False)
        result = _tightened(result, max_floors or {})
        _attach(request, [report for a in result.artifacts for report in a.timed()])
        lacking = [
            a.error for a in result.artifacts if isinstance(a.error, MissingRequirementError)
        ]
        bad = [a for a in result.artifacts if a.failure() is not None]
        if lacking and missing == "skip" and len(lacking) == len(bad):
            pytest.skip(lacking[0].message)
        if bad:
            pytest.fail("\n\n".join(map(_told, bad)), pytrace=False)
        return result

    return run


@contextmanager
def _without_traces() -> Iterator[None]:
    """Torch logs every tracing step for its own tools; pytest would show them in each failure.

    Pytest listens to loggers that do not propagate, too.
    """
    log = logging.getLogger("torch.__trace")
    listening = [h for h in log.handlers if type(h).__module__.startswith("_pytest.")]
    for handler in listening:
        log.removeHandler(handler)
    try:
        yield
    finally:
        for handler in listening:
            log.addHandler(handler)


def _listed(options: Mapping[str, Any]) -> dict[str, Any]:
    """A single sample, device or text may be given bare."""
    plural = ("data", "devices", "allow")
    return {
        key: [value] if key in plural and isinstance(value, (str, Path)) else value
        for key, value in options.items()
    }


def _error(error: Any) -> str:
    return f"{error.message}\n{error.hint}" if error.hint else str(error.message)


def _told(artifact: ExportedArtifact) -> str:
    """The report as a terminal shows it, or the error."""
    report = artifact.report
    if report is None or report.verdict == "pass":
        error = artifact.failure()
        return f"{artifact.format}: {_error(error) if error is not None else ''}"
    found = report.localization
    what = report.reason if found is None else found.summary
    return f"{artifact.format} {report.verdict}: {what}\n{_text(report)}"


def _text(report: Any) -> str:
    from io import StringIO

    from rich.console import Console

    from .validation.report.terminal import render

    stream = StringIO()
    render(report, Console(file=stream, width=80, no_color=True, force_terminal=False))
    return stream.getvalue().rstrip()


def _tightened(result: ExportResult, limits: Mapping[str, float]) -> ExportResult:
    """The result under the test's own limits, which may be lower than the rule's."""
    if not limits:
        return result
    from .validation.project.checking import tightened

    artifacts = []
    for artifact in result.artifacts:
        reports = tuple(tightened(report, limits) for report in artifact.reports)
        worse = any(report.verdict == "fail" for report in reports)
        verdict = "fail" if worse else artifact.verdict
        artifacts.append(replace(artifact, reports=reports, verdict=verdict))
    return replace(result, artifacts=tuple(artifacts))


def _attach(request: pytest.FixtureRequest, reports: Sequence[Report]) -> None:
    """To the test's item, so that JUnit XML and other reports hold it; and as files if asked.

    What fails is the test's message, and is not shown twice.
    """
    for report in reports:
        name = f"parity {report.format} {report.evidence.device}"
        request.node.user_properties.append((name, f"{report.verdict}: {report.reason}"))
        if report.verdict == "pass":
            request.node.add_report_section("call", name, _text(report))
    if folder := request.config.getoption("--parity-reports"):
        from .validation.report.document import document_of, write

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in request.node.nodeid)[-150:]
        for kind, suffix in (("json", "report.json"), ("html", "html")):
            write(document_of(reports), kind, target / f"{stem}.{suffix}")
