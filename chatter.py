"""What libraries print while they convert and run goes into a log, native code included.

Only the command line installs a log (`library_log`): a program that uses the API keeps
its own streams. Nothing is caught outside `muffled`, so what the user's model
prints while it is loaded and captured stays visible.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .publishing import destination_errors

__all__ = ["library_log", "log_descriptor", "log_to", "muffled"]

_descriptor: int | None = None


@contextmanager
def library_log(path: str | None, *, show: bool) -> Iterator[None]:
    """While active, libraries' output while targets work goes to a log.

    Args:
        path: where to keep it, appending; None: a temporary file, which goes again.
        show: print it on stderr at the end.

    Raises:
        DestinationError: the log cannot be written.
    """
    if path is None:
        with tempfile.TemporaryDirectory(prefix="isomorph-") as folder:
            with library_log(f"{folder}/libraries.log", show=show):
                yield
            return
    log = Path(path)
    with destination_errors(log):
        start = log.stat().st_size if log.exists() else 0
        log.open("ab").close()
    with log_to(log):
        try:
            yield
        finally:
            if show:
                with log.open("rb") as file:
                    file.seek(start)
                    sys.stderr.write(file.read().decode("utf-8", "replace"))


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """While active, `muffled` sends output to the file at `path`, appending."""
    global _descriptor
    before = _descriptor
    _descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield
    finally:
        os.close(_descriptor)
        _descriptor = before


def log_descriptor() -> int | None:
    """The open log, for the output of a child process; None where no log is installed."""
    return _descriptor


@contextmanager
def muffled() -> Iterator[None]:
    """While active, stdout and stderr go to the log, file descriptors 1 and 2 included."""
    if _descriptor is None:
        yield
        return
    streams = sys.stdout, sys.stderr
    with open(_descriptor, "w", encoding="utf-8", errors="replace", closefd=False) as log:
        _flush(streams)
        saved = _point_at(_descriptor)
        sys.stdout = sys.stderr = log
        try:
            yield
        finally:
            _flush((log, sys.stdout, sys.stderr))
            sys.stdout, sys.stderr = streams
            _restore(saved)


def _point_at(descriptor: int) -> dict[int, int]:
    """Let 1 and 2 lead to `descriptor`; returns where they led, but for closed ones."""
    saved = {}
    for number in (1, 2):
        with suppress(OSError):
            saved[number] = os.dup(number)
            os.dup2(descriptor, number)
    return saved


def _restore(saved: dict[int, int]) -> None:
    for number, duplicate in saved.items():
        os.dup2(duplicate, number)
        os.close(duplicate)


def _flush(streams: tuple[object, ...]) -> None:
    for stream in streams:
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[attr-defined]
