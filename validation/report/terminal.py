"""Draws a report with rich: one row per output, then what the reader must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..verdict import Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from .localization import Localization
    from .model import OutputReport, Report

__all__ = ["render"]

_STYLE: dict[Verdict, str] = {
    "pass": "bold green",
    "fail": "bold red",
    "unverified": "bold yellow",
}

# Parts of the names of details that a reader wants to know at once; the rest is in the report file.
_TELLING = ("half", "delegated", "layers", "computed", "engine")

# Cases named in one line before the rest is left out.
_SHOWN = 6


def render(report: Report, console: Console) -> None:
    """Print a report; readable at 80 columns and without colour."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("output", overflow="fold", ratio=2)
    table.add_column("type", overflow="fold")
    table.add_column(f"peak<={report.rule.peak:g}", justify="right", no_wrap=True)
    table.add_column(f"rms<={report.rule.rms:g}", justify="right", no_wrap=True)
    table.add_column("max error", justify="right", no_wrap=True)
    table.add_column("worst case", overflow="fold", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for output in report.outputs:
        table.add_row(
            Text(output.name),
            Text(_type(output)),
            _figure(output.peak_ratio),
            _figure(output.rms_ratio),
            _distance(output),
            Text(output.worst_case or ""),
            Text(output.verdict, style=_STYLE[output.verdict]),
        )
    if report.outputs:
        console.print(table)
    evidence = report.evidence
    line = Text(report.verdict.upper(), style=_STYLE[report.verdict])
    line.append(
        f"  {len(report.cases)} cases, {evidence.kind} by {evidence.runtime} "
        f"{evidence.version} on {evidence.device}",
        style="default not bold",
    )
    console.print(line)
    console.print(Text(report.reason))
    if told := _told_by_runtime(report):
        console.print(Text(f"  runtime: {told}"))
    _render_remarks(report, console)
    if report.localization is not None:
        _render_localization(report.localization, console)


def _render_localization(found: Localization, console: Console) -> None:
    """The operator with its line, and the stages with the first wrong one marked."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"first wrong operator (case {found.case})", style="bold"))
    if (culprit := found.culprit) is not None:
        names = " + ".join(target.removeprefix("aten.") for target in culprit.targets)
        console.print(Text.assemble("  operator  ", (names, "bold red")))
        if culprit.module:
            console.print(Text(f"  module    {culprit.module}"))
        if culprit.location:
            console.print(Text(f"  line      {culprit.location}: {culprit.source}"))
        if node := f"{culprit.artifact_operator} {culprit.artifact_node}".strip():
            console.print(Text(f"  node      {node}"))
        figures = (
            f"{_figure(ratio)} {where}"
            for ratio, where in (
                (culprit.before, "before"),
                (culprit.after, "after"),
                (culprit.alone, "run alone"),
            )
            if ratio is not None
        )
        console.print(Text(f"  error     {', '.join(figures)} (floors)"))
    else:
        console.print(Text(f"  {found.summary}"))
    table = Table("  stage", "peak", "rms", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for stage in found.stages:
        state = {True: "ok", False: "wrong", None: "not run"}[stage.passed]
        first = " <- first wrong" if stage.name == found.stage else ""
        table.add_row(
            Text(f"  {stage.name}"),
            _figure(stage.peak_ratio),
            _figure(stage.rms_ratio),
            Text(f"{state}{first}{f': {stage.note}' if stage.note else ''}"),
        )
    console.print(table)
    for note in found.notes:
        console.print(Text(f"  note: {note}"))


def _render_remarks(report: Report, console: Console) -> None:
    from rich.text import Text

    for (verdict, reason), names in _grouped(report).items():
        shown = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
        console.print(Text.assemble("  ", (verdict, _STYLE[verdict]), f" {shown}: {reason}"))
    for output in report.outputs:
        if output.unstable:
            console.print(
                Text(
                    f"  {output.name}: {output.unstable} elements over all cases change under "
                    f"rounding noise and were not compared"
                )
            )
    for note in report.notes:
        console.print(Text(f"  note: {note}"))


def _told_by_runtime(report: Report) -> str:
    """What the runtime says of how it computed: precision of layers, share of a delegate."""
    return "; ".join(
        f"{key.replace('_', ' ')} {_plain(value)}"
        for key, value in report.evidence.details.items()
        if any(word in key for word in _TELLING) and isinstance(value, (str, int, float, Mapping))
    )


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{count} in {key}" for key, count in value.items())
    return str(value)


def _grouped(report: Report) -> dict[tuple[Verdict, str], list[str]]:
    """Names of the cases that did not pass, by verdict and reason."""
    groups: dict[tuple[Verdict, str], list[str]] = {}
    for case in report.cases:
        if case.verdict != "pass":
            groups.setdefault((case.verdict, case.reason), []).append(case.name)
    return groups


def _type(output: OutputReport) -> str:
    return f"{output.dtype}[{'x'.join(str(size) for size in output.shape)}]"


def _figure(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 1000 else f"{ratio:.1e}"


def _distance(output: OutputReport) -> str:
    if output.max_abs is not None:
        return f"{output.max_abs:.1e}"
    return f"{output.mismatches} differ"
