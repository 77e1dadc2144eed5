"""What people see in a terminal: progress and messages on stderr, results on stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

    from .errors import IsomorphError
    from .progress import Step

__all__ = [
    "ConsoleProgress",
    "only_json_on_stdout",
    "print_error",
    "print_json",
    "stdout_console",
]

_LABELS = {
    "load": "load the checkpoint",
    "capture": "capture the graph",
    "convert": "convert",
    "reference": "measure the noise floor",
    "parity": "run the artifact",
    "write": "write",
}


def stdout_console() -> Console:
    """A console for results; as wide as the terminal, 100 columns where there is none."""
    from rich.console import Console

    class Patient(Console):
        """Goes on when the reader of a pipe has left: the exit code must still be right."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            _read_by_nobody()

    return Patient(width=None if sys.stdout.isatty() else 100, highlight=False)


def _read_by_nobody() -> None:
    """Let further output go nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stderr_console(stream: TextIO | None = None) -> Console:
    """Wraps at words in a terminal; elsewhere every message is one line."""
    from rich.console import Console

    stream = stream or sys.stderr
    return Console(file=stream, highlight=False, soft_wrap=not stream.isatty())


def _own_stderr() -> TextIO:
    """A stream to where stderr leads now, whatever happens to descriptor 2 later."""
    try:
        if sys.stderr.fileno() == 2:
            return os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        pass
    return sys.stderr


class ConsoleProgress:
    """A line per stage with its time; a bar where a stage has steps and stderr is a terminal."""

    def __init__(self) -> None:
        # Libraries' output is caught while targets work (see chatter.py); ours must be seen.
        self._console = _stderr_console(_own_stderr())

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Step]:
        """Show the stage while it runs, and a line with its time once it is done."""
        label = _LABELS.get(name, name)
        start = time.perf_counter()
        if self._console.is_terminal:
            with _bars(self._console, counted=total is not None) as bars:
                task = bars.add_task(label, total=total)
                yield _BarStep(bars, task)
        else:
            yield _NoStep()
        self._console.print(f"  {label:<26} {time.perf_counter() - start:7.2f} s")

    def note(self, message: str) -> None:
        """Print a message between the stages."""
        self._console.print(f"  note: {message}", markup=False)


def _bars(console: Console, *, counted: bool) -> Bars:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    steps = (BarColumn(bar_width=30), MofNCompleteColumn()) if counted else ()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *steps,
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


class _BarStep:
    def __init__(self, bars: Bars, task: Any) -> None:
        self._bars = bars
        self._task = task

    def advance(self, count: int = 1) -> None:
        self._bars.advance(self._task, count)


class _NoStep:
    def advance(self, count: int = 1) -> None:
        """Nothing is drawn where nobody watches."""


def print_error(error: IsomorphError) -> None:
    """One message: what happened, then what to do."""
    from rich.text import Text

    console = _stderr_console()
    console.print(Text.assemble(("error:", "bold red"), f" {error.message}"))
    if error.hint:
        console.print(Text.assemble(("help:", "bold"), f"  {error.hint}"))


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    try:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _read_by_nobody()


@contextmanager
def only_json_on_stdout(active: bool) -> Iterator[None]:
    """While active, whatever libraries print to stdout goes to stderr, native code included."""
    if not active:
        yield
        return
    ours = sys.stdout
    ours.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of the two is closed: there is nothing to keep apart
        yield
        return
    try:
        yield
    finally:
        sys.stdout = ours  # the model's code may have replaced or closed it
        with suppress(ValueError):
            ours.flush()
        os.dup2(saved, 1)
        os.close(saved)
