"""Results as text for people: exports, inspections, the table of targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from .console import stdout_console

if TYPE_CHECKING:
    from .exporter.inspection import Inspection
    from .exporter.result import ExportedArtifact, ExportResult
    from .targets.base import Capability
    from .validation.report import Report

__all__ = ["print_export", "print_inspection", "print_report", "print_targets"]

_SHOWN = 12


def print_export(result: ExportResult) -> None:
    """Each artifact with its parity table and one line that says how it ended."""
    from .validation.report.terminal import render

    console = stdout_console()
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
    several = len(result.artifacts) > 1
    for artifact in result.artifacts:
        if several:
            console.rule(artifact.format, align="left", style="dim")
        for report in artifact.reports:
            render(report, console)
        told = {note for report in artifact.reports for note in report.notes}
        for note in artifact.notes:
            if note not in told:
                console.print(f"  note: {note}", markup=False)
        console.print(_summary(artifact), soft_wrap=True)
    if several:
        console.rule("all formats", align="left", style="dim")
        console.print(_overview(result))


def _overview(result: ExportResult) -> Table:
    """One row per format: how it ended, how that is known, and the file's name."""
    table = Table("format", "verdict", "evidence", "size", "file", box=None, pad_edge=False)
    styles = {"pass": "green", "fail": "bold red", "unverified": "bold yellow"}
    for artifact in result.artifacts:
        verdict = "error" if artifact.error else artifact.verdict
        file = artifact.path.name if artifact.path else ""
        table.add_row(
            artifact.format,
            Text(verdict, styles.get(verdict, "bold red")),
            artifact.evidence.kind if artifact.evidence else "-",
            size_text(artifact.bytes) if artifact.path else "-",
            Text(f"exit code {artifact.error.exit_code}" if artifact.error else file),
        )
    return table


def _summary(artifact: ExportedArtifact) -> Text:
    """The last line of an artifact: where it is, and for one that was not checked, so."""
    if artifact.error is not None:
        help = f"\n{artifact.error.hint}" if artifact.error.hint else ""
        return Text.assemble(("FAILED", "bold red"), f"  {artifact.error.message}{help}")
    place = f"{artifact.path}  {size_text(artifact.bytes)}"
    if artifact.report is not None:
        return Text(f"{'rejected as' if artifact.verdict == 'fail' else 'wrote'} {place}")
    return Text.assemble(
        ("UNVERIFIED", "bold yellow"),
        "  nothing was checked (--no-validate), so what the file computes is not known\n",
        f"wrote {place}",
    )


def size_text(count: int) -> str:
    """Bytes in the unit that reads best: `12.3 kB`, `97.8 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{count} B"
        size /= 1000
    return f"{size:.3g} GB"


def print_report(report: Report) -> None:
    """A validation's table and verdict."""
    from .validation.report.terminal import render

    console = stdout_console()
    render(report, console)


def print_inspection(found: Inspection) -> None:
    """What a file holds, in a few lines."""
    console = stdout_console()
    console.print(
        f"{found.path}: {found.looks_like}, {size_text(found.bytes)}", markup=False, soft_wrap=True
    )
    if found.entries:
        _print_entries(found)
    if found.tensors:
        _print_tensors(found)
    unsafe = [(name, rank) for name, rank in found.globals if rank != "safe"]
    if found.root_class:
        console.print(f"holds a module of class {found.root_class}", markup=False)
    if unsafe:
        console.print("loading it would import:")
        for name, rank in unsafe[:_SHOWN]:
            console.print(f"  {name}  ({rank})", markup=False)
    elif found.globals:
        console.print("loading it imports nothing beyond what torch's safe loader allows")
    for note in found.notes:
        console.print(f"note: {note}", markup=False)
    if found.suggestion:
        console.print(f"try: {found.suggestion}", markup=False, soft_wrap=True)


def _print_entries(found: Inspection) -> None:
    table = Table("entry", "holds", box=None, pad_edge=False)
    for key, holds in found.entries[:_SHOWN]:
        table.add_row(Text(key), Text(holds))
    console = stdout_console()
    console.print(table)
    if len(found.entries) > _SHOWN:
        console.print(f"... and {len(found.entries) - _SHOWN} more entries")


def _print_tensors(found: Inspection) -> None:
    table = Table("tensor", "dtype", "shape", box=None, pad_edge=False)
    for tensor in found.tensors[:_SHOWN]:
        table.add_row(Text(tensor.name), tensor.dtype, "x".join(map(str, tensor.shape)) or "scalar")
    console = stdout_console()
    console.print(table)
    if len(found.tensors) > _SHOWN:
        console.print(f"... and {len(found.tensors) - _SHOWN} more tensors")


def print_targets(found: Mapping[str, Capability]) -> None:
    """One row per format: package and version or how to get it, builds and runs here, devices."""
    table = Table(box=None, pad_edge=False)
    for title in ("format", "package, or what brings it", "builds here", "runs here", "devices"):
        table.add_column(title, overflow="fold")
    notes = []
    for name, capability in found.items():
        table.add_row(
            Text(name),
            _package(capability),
            _yes(capability.builds),
            Text("evaluated", "green") if capability.evaluates else _yes(capability.runs),
            ", ".join(capability.devices) or "-",
        )
        notes += [f"{name}: {capability.note}"] if capability.note else []
        notes += [f"{name} on {d}: {how}" for d, how in capability.device_remedies.items()]
    console = stdout_console()
    console.print(table)
    for note in notes:
        console.print(note, markup=False)


def _package(capability: Capability) -> Text:
    parts = []
    if capability.version:
        parts.append(" ".join(filter(None, (capability.package, capability.version))))
    if capability.remedy:
        parts.append(capability.remedy)
    return Text("\n".join(parts) or "-")


def _yes(value: bool) -> Text:
    return Text("yes", "green") if value else Text("no", "yellow")
