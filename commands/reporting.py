"""`--report KIND:PATH`: files for people and CI systems beside what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import DestinationError, IsomorphError, UnprovenError, UsageError, first_line
from ..failures import as_error

if TYPE_CHECKING:
    from ..exporter.result import ExportResult
    from ..validation.report import Report
    from ..validation.report.document import ReportedError

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

    @contextmanager
    def also_of_errors(
        self, source: str, model: str = "", formats: Sequence[str] = ("",)
    ) -> Iterator[None]:
        """Write the files for what ends in an error too, which is raised on.

        Args:
            source: the file that was to be exported, or that describes what was.
            model: the name that reports have for it.
            formats: those that come to nothing by the error.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            told = as_error(error) or IsomorphError(
                f"this is a bug in Isomorph ({type(error).__name__}: {first_line(error)})"
            )
            if self.files:
                from ..validation.report.document import ReportedError

                reports = error.reports if isinstance(error, UnprovenError) else ()
                errors = [ReportedError.of(told, model, name, source) for name in formats]
                # The error itself is what the user must hear.
                with suppress(DestinationError):
                    self.write(reports, errors)
            raise

    def write_export(self, result: ExportResult) -> None:
        """Write what an export gave: its reports, and the errors that these do not tell."""
        if not self.files:
            return
        from ..validation.report.document import ReportedError

        self.write(
            [report for artifact in result.artifacts for report in artifact.timed()],
            [
                ReportedError.of(a.error, Path(result.source).name, a.format, result.source)
                for a in result.artifacts
                if a.error is not None
            ],
        )

    def write(self, reports: Sequence[Report], errors: Sequence[ReportedError] = ()) -> None:
        """Write every file; `errors` are those that no report tells."""
        if not self.files:
            return
        from ..validation.report.document import document_of, write

        document = document_of(reports, errors)
        for kind, path in self.files:
            write(document, kind, path)
