"""What build_engine.py prints at its end.

Shipped as it stands in packages for devices: the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["lines_of"]


def lines_of(report: Any, receipt: Mapping[str, Any], path: Any) -> Iterator[str]:
    """A table of the outputs, what was built, and on the last line the verdict.

    Args:
        report: of `report.model.Report`'s kind.
        receipt: what is written to disk.
        path: the engine's.
    """
    yield from _table(report)
    engine, built = receipt["engine"], receipt["built_by"]
    yield f"engine   {path} ({engine['bytes'] / 1e6:.1f} MB, {built['seconds']:.1f} s)"
    if (timed := receipt["time"]) is not None:
        shapes = ", ".join(f"{name} {_sizes(shape)}" for name, shape in timed["inputs"].items())
        median = 1000 * timed["median_seconds"]
        yield f"time     {median:.3f} ms a run (median of {timed['runs']}; {shapes})"
    yield f"receipt  {path}.receipt.json"
    for note in report.notes:
        yield f"note     {note}"
    yield f"reason   {report.reason}"
    yield report.verdict.upper()


def _table(report: Any) -> Iterator[str]:
    limits = (f"peak<={report.rule.peak:g}", f"rms<={report.rule.rms:g}")
    rows = [("output", "type", *limits, "max error", "worst case", "verdict")]
    for output in report.outputs:
        error = "-" if output.max_abs is None else f"{output.max_abs:.1e}"
        if output.mismatches:
            error = f"{output.mismatches} differ"
        rows.append(
            (
                output.name,
                f"{output.dtype}[{_sizes(output.shape)}]",
                _figure(output.peak_ratio),
                _figure(output.rms_ratio),
                error,
                output.worst_case or "-",
                output.verdict,
            )
        )
    # All rows are of one length.
    widths = [max(map(len, column)) for column in zip(*rows)]  # noqa: B905
    for row in rows:
        cells = zip(row, widths)  # noqa: B905
        yield "  ".join(cell.ljust(width) for cell, width in cells).rstrip()


def _sizes(shape: Any) -> str:
    return "x".join(map(str, shape))


def _figure(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 1000 else f"{ratio:.1e}"
