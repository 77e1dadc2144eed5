"""The document that machines read, and the files that people and CI systems read.

Reports go in; `write` puts one of the formats of `KINDS` into a file, all or nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputFileError, IsomorphError, UsageError
from ...publishing import destination_errors
from .model import SCHEMA

if TYPE_CHECKING:
    from .model import Report

__all__ = [
    "KINDS",
    "ReportedError",
    "demand_writable",
    "document_of",
    "read_document",
    "schema",
    "write",
]


@dataclass(frozen=True)
class ReportedError:
    """An artifact that could not be made or proved; `source`: the file to look at.

    `model` and `format` are empty where the work ended before it came to one.
    """

    model: str
    format: str
    message: str
    hint: str | None
    exit_code: int
    source: str = ""

    @staticmethod
    def of(error: IsomorphError, model: str, format: str, source: str = "") -> ReportedError:
        """What a document holds of `error`."""
        return ReportedError(
            model, format, error.message, error.hint, error.exit_code, _relative(source)
        )


def _relative(source: str) -> str:
    """A path as code hosts know it: below the working folder, else the bare name."""
    if not source:
        return ""
    path = Path(source).absolute()
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name


def document_of(reports: Sequence[Report], errors: Sequence[ReportedError] = ()) -> dict[str, Any]:
    """What `--report json:PATH` writes; docs/reports.md and `schema()` describe it.

    `errors` are those that no report tells: a document with one is no pass.
    """
    from ... import __version__

    return {
        "schema": SCHEMA,
        "isomorph": __version__,
        "reports": [report.to_json() for report in reports],
        "errors": [asdict(error) for error in errors],
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    path = Path(__file__).with_name("report.schema.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def read_document(path: Path) -> dict[str, Any]:
    """Read a document, or a `NAME.report.json`; one from before there were `errors` has none.

    Raises:
        InputFileError: it cannot be read, is none, or has another schema number.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        entries = found["reports"]
        numbers = {entry["schema"] for entry in entries}
        names: list[tuple[Any, ...]] = [
            (o["name"], o["verdict"]) for entry in entries for o in entry["outputs"]
        ]
        names += [(entry["verdict"],) for entry in entries]
        names += [(e["model"], e["format"]) for e in found.setdefault("errors", [])]
        if not all(isinstance(name, str) for entry in names for name in entry):
            raise TypeError("a name or verdict is no text")
    except FileNotFoundError:
        raise InputFileError(f"the report {path} does not exist") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(
            f"{path} is no report of Isomorph ({type(error).__name__})",
            hint="name a file that --report json:PATH wrote, or a NAME.report.json",
        ) from error
    if other := [number for number in numbers if number not in (1, SCHEMA)]:
        raise InputFileError(
            f"{path} has schema {other[0]}; this version of Isomorph reads up to {SCHEMA}",
            hint="read it with the version that wrote it, or a newer one",
        )
    document: dict[str, Any] = found
    return document


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _html(document: Mapping[str, Any]) -> str:
    from .html import render

    return render(document)


def _junit(document: Mapping[str, Any]) -> str:
    from .junit import render

    return render(document)


def _sarif(document: Mapping[str, Any]) -> str:
    from .sarif import render

    return render(document)


KINDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "html": _html,
    "junit": _junit,
    "sarif": _sarif,
    "json": _json,
}
"""What `--report KIND:PATH` can write."""


def write(document: Mapping[str, Any], kind: str, path: Path) -> None:
    """Write `document` as `kind`; an older file is replaced only once the new one is whole.

    Raises:
        UsageError: the kind is unknown.
        DestinationError: the file cannot be written.
    """
    if kind not in KINDS:
        raise UsageError(f"report kind {kind!r} is unknown", hint=f"choose {', '.join(KINDS)}")
    text = KINDS[kind](document)
    with destination_errors(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def demand_writable(path: Path) -> None:
    """Find out before the work whether a report could be written.

    Raises:
        DestinationError: it could not.
    """
    with destination_errors(path):
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory", str(path))
        if path.exists() and not path.is_file():
            raise PermissionError(13, "it is no plain file", str(path))
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        os.close(handle)
        Path(name).unlink()
