"""`isomorph check`: all that a project's configuration describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ParityError
from ..failures import failures, leave
from .options import budget_option, logged, only_json, print_json, progress_of
from .reporting import ReportFiles, report_option

if TYPE_CHECKING:
    from ..validation.project import Checked
    from ..validation.report.document import ReportedError

__all__ = ["check"]


@click.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--config",
    metavar="FILE",
    help="Default: the nearest isomorph.toml or pyproject.toml with [tool.isomorph].",
)
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="Only these formats, instead of those that the configuration names.",
)
@click.option("--keep", metavar="DIR", help="Keep the artifacts, in a folder for each model.")
@budget_option
@report_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("--log", metavar="FILE", help="Keep what libraries print.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks, and what libraries print.")
def check(
    names: tuple[str, ...],
    config: str | None,
    formats: tuple[str, ...],
    keep: str | None,
    budget: float | None,
    report_texts: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Export and check the models that isomorph.toml or [tool.isomorph] describes.

    What could not be verified is a failure, unless the configuration says require = "built".

    \b
    Example:
      isomorph check
    """
    with failures(as_json, given["verbose"], None):
        from ..validation.project import check as run
        from ..validation.project import find_configuration, read_configuration
        from ..validation.project.checking import worst

        files = ReportFiles.parse(report_texts)
        with files.also_of_errors(config or ""):
            file = Path(config) if config else find_configuration(Path.cwd())
            models = read_configuration(file).chosen(names)
        with files.also_of_errors(str(file)), only_json(as_json), logged(given):
            entries = list(
                run(
                    models,
                    formats=formats,
                    keep=Path(keep) if keep else None,
                    budget=budget,
                    progress=progress_of(given),
                )
            )
        reports = [report for entry in entries for report in entry.reports]
        errors = _errors(entries, file)
        files.write(reports, errors)
        if as_json:
            print_json(_document(entries, errors))
        else:
            _print(entries)
        if (error := worst(entries)) is not None:
            leave(error, as_json)


def _errors(entries: list[Checked], file: Path) -> list[ReportedError]:
    """What no report tells; a mismatch is in its report."""
    from ..validation.report.document import ReportedError

    return [
        ReportedError.of(entry.error, entry.model, entry.format, str(file))
        for entry in entries
        if entry.error is not None and all(report.verdict != "fail" for report in entry.reports)
    ]


def _document(entries: list[Checked], errors: list[ReportedError]) -> dict[str, Any]:
    from ..exporter.result import error_document
    from ..validation.report.document import document_of

    return {
        **document_of([report for entry in entries for report in entry.reports], errors),
        "checks": [
            {
                "model": entry.model,
                "format": entry.format,
                "verdicts": [report.verdict for report in entry.reports],
                "error": None if entry.error is None else error_document(entry.error),
            }
            for entry in entries
        ],
    }


def _print(entries: list[Checked]) -> None:
    """What failed in full, then one row for each artifact and device."""
    from rich.table import Table
    from rich.text import Text

    from ..console import stdout_console
    from ..validation.report.terminal import render

    console = stdout_console()
    styles = {"pass": "green", "fail": "bold red", "unverified": "bold yellow"}
    table = Table(
        "model", "format", "device", "evidence", "peak", "rms", "verdict", box=None, pad_edge=False
    )
    for entry in entries:
        for report in entry.reports:
            if report.verdict != "pass":
                console.rule(f"{entry.model} {entry.format}", align="left", style="dim")
                render(report, console)
            ratios = [o for o in report.outputs if o.peak_ratio is not None]
            peak = max((o.peak_ratio or 0.0 for o in ratios), default=None)
            rms = max((o.rms_ratio or 0.0 for o in ratios), default=None)
            table.add_row(
                Text(entry.model),
                entry.format,
                report.evidence.device,
                report.evidence.kind,
                "-" if peak is None else f"{peak:.2f}",
                "-" if rms is None else f"{rms:.2f}",
                Text(report.verdict, styles[report.verdict]),
            )
        if entry.error is not None and (
            not entry.reports or not isinstance(entry.error, ParityError)
        ):
            console.print(Text(f"{entry.model} {entry.format}: {entry.error.message}"))
            if entry.error.hint:
                console.print(Text(f"  {entry.error.hint}"))
            table.add_row(
                Text(entry.model),
                entry.format,
                "-",
                "-",
                "-",
                "-",
                Text(f"exit code {entry.error.exit_code}", "bold red"),
            )
    console.print(table)
