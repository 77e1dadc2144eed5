"""What the runtime's native code writes to stderr: kept off the user's screen, and read."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["NativeLog", "native_log"]

# `[method.cpp:1243] text`, as ExecuTorch's log prints.
_LINE = re.compile(r"^(?:[A-Z] \d+:\d+:\d+\.\d+ \S+ )?\[?([\w.]+:\d+)\] (.*)$", re.MULTILINE)
# Said on every machine that is no Android phone.
_NOISE = "cpuinfo_utils.cpp"


class NativeLog:
    """Lines that were caught; complete when the `with` has ended."""

    def __init__(self) -> None:
        self.text = ""

    @property
    def reasons(self) -> str:
        """The messages, without source positions, in order, each once."""
        lines = [text for at, text in _LINE.findall(self.text) if not at.startswith(_NOISE)]
        return "; ".join(dict.fromkeys(line.strip().rstrip(".") for line in lines))


@contextmanager
def native_log() -> Iterator[NativeLog]:
    """While active, stderr, file descriptor 2 included, leads to a temporary file.

    Parts of the runtime write to the descriptor, parts through Python's `sys.stderr`. The
    redirection is the process's: not for several threads at once.
    """
    log = NativeLog()
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed: nothing can be written there
        yield log
        return
    stream = sys.stderr
    with (
        tempfile.TemporaryFile() as caught,
        os.fdopen(os.dup(caught.fileno()), "w", encoding="utf-8", errors="replace") as text,
    ):
        os.dup2(caught.fileno(), 2)
        sys.stderr = text
        try:
            yield log
        finally:
            text.flush()
            sys.stderr = stream
            os.dup2(saved, 2)
            os.close(saved)
            caught.seek(0)
            log.text = caught.read().decode("utf-8", errors="replace")
