"""Exports each model of a project and checks every artifact."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import IsomorphError, ParityError, UnprovenError
from ...exporter.result import PRECEDENCE
from ..verdict import Ratios

if TYPE_CHECKING:
    from ...exporter.result import ExportResult
    from ...progress import Progress
    from ..report import Report
    from .configuration import Model

__all__ = ["Checked", "check", "worst"]


@dataclass(frozen=True)
class Checked:
    """One format of one model: its reports, or the error that it ended in."""

    model: str
    format: str
    reports: tuple[Report, ...] = ()
    error: IsomorphError | None = None


def check(
    models: Sequence[Model],
    *,
    formats: Sequence[str] = (),
    keep: Path | None = None,
    budget: float | None = None,
    progress: Progress | None = None,
) -> Iterator[Checked]:
    """Export and check, model after model; one that fails does not stop the others.

    Args:
        models: from `read_configuration`.
        formats: instead of those that the models name.
        keep: folder for the artifacts, one below it for each model; None: they are not kept.
        budget: instead of those that the models name, see `export`.
        progress: told about stages.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for model in models:
            if budget is not None:
                model = replace(model, budget=budget)
            folder = (keep or Path(scratch)) / model.name
            yield from _check(model, tuple(formats) or model.formats, folder, progress)


def _check(
    model: Model, formats: Sequence[str], folder: Path, progress: Progress | None
) -> Iterator[Checked]:
    try:
        result = _export(model, formats, folder, progress)
    except IsomorphError as error:
        # What one device could not prove, another may have.
        known = error.reports if isinstance(error, UnprovenError) else ()
        reports = tuple(replace(report, model=model.name) for report in known)
        yield from (Checked(model.name, name, reports, error) for name in formats)
        return
    for artifact in result.artifacts:
        reports = tuple(
            tightened(replace(report, model=model.name), model.max_floors)
            for report in artifact.timed()
        )
        problem = artifact.error
        failed = [report for report in reports if report.verdict == "fail"]
        if problem is None and failed:
            found = failed[0].localization
            first = f"; {found.summary}" if found is not None else ""
            problem = ParityError(f"{model.name} as {artifact.format}: {failed[0].reason}{first}")
        yield Checked(model.name, artifact.format, reports, problem)


def _export(
    model: Model, formats: Sequence[str], folder: Path, progress: Progress | None
) -> ExportResult:
    from ...exporter.pipeline import export

    options = {name: model.options.get(name, {}) for name in formats}
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[str | Path] = [*model.inputs]
    if model.inputs_file is not None:
        inputs.append(Path(model.inputs_file))
    return export(
        model.source,
        formats,
        model=model.model,
        inputs=inputs or None,
        dynamic=dict(model.dynamic) or None,
        output=folder,
        precision=model.precision,
        devices=model.devices or None,
        data=list(model.data),
        budget=model.budget,
        options=options,
        require=None if model.require == "built" else model.require,
        trust=model.trust,
        allow=model.allow,
        progress=progress,
    )


def tightened(report: Report, limits: Mapping[str, float]) -> Report:
    """`report` under a project's own lower limits, which are no part of the rule."""
    rule = report.rule
    rule = replace(rule, peak=limits.get("peak", rule.peak), rms=limits.get("rms", rule.rms))
    if report.verdict != "pass" or not limits:
        return replace(report, rule=rule)
    for output in report.outputs:
        ratios = Ratios(output.peak_ratio or 0.0, output.rms_ratio or 0.0, rule)
        if not ratios.within:
            reason = (
                f"{output.name}: {ratios.peak:.2f} and {ratios.rms:.2f} floors off, and the "
                f"project allows {rule.peak:g} and {rule.rms:g} (max_floors)"
            )
            outputs = tuple(
                replace(o, verdict="fail", reason=reason) if o is output else o
                for o in report.outputs
            )
            return replace(report, verdict="fail", reason=reason, outputs=outputs, rule=rule)
    return replace(report, rule=rule)


def worst(checked: Sequence[Checked]) -> IsomorphError | None:
    """The error that gives the exit code, see `errors.PRECEDENCE`."""
    errors = [entry.error for entry in checked if entry.error is not None]
    return min(errors, key=lambda error: PRECEDENCE.index(error.exit_code), default=None)
