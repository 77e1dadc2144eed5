"""`--report KIND:PATH`: files for people and CI systems beside what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError

if TYPE_CHECKING:
    from ..validation.report import Report

__all__ = ["ReportFiles", "report_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_KINDS = ("html", "junit", "sarif", "json")


def report_option(command: _Command) -> _Command:
    """The option; its value goes to `ReportFiles.parse`."""
    return click.option(
        "--report",
        "report_texts",
        multiple=True,
        metavar="KIND:PATH",
        help="Write the report as html, junit, sarif or json; repeat for several.",
    )(command)


@dataclass(frozen=True)
class ReportFiles:
    """What to write, by kind and path."""

    files: tuple[tuple[str, Path], ...]

    @staticmethod
    def parse(texts: Sequence[str]) -> ReportFiles:
        """Read the option and make sure, before any work, that the files can be written.

        Raises:
            UsageError: a text is not KIND:PATH, or a path is given twice.
            DestinationError: a file cannot be written.
        """
        files = []
        for text in texts:
            kind, colon, name = text.partition(":")
            if kind not in _KINDS or not colon or not name:
                raise UsageError(
                    f"--report {text} is not KIND:PATH",
                    hint=f"such as html:report.html; kinds are {', '.join(_KINDS)}",
                )
            files.append((kind, Path(name)))
        paths = [path.absolute() for _, path in files]
        if len(set(paths)) < len(paths):
            raise UsageError("--report names one file twice")
        if files:
            from ..validation.report.document import demand_writable

            for _, path in files:
                demand_writable(path)
        return ReportFiles(tuple(files))

    def write(self, reports: Sequence[Report]) -> None:
        """Write every file."""
        if not self.files:
            return
        from ..validation.report.document import document_of, write

        document = document_of(reports)
        for kind, path in self.files:
            write(document, kind, path)
