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
    """While active, file descriptor 2 leads to a temporary file. Not for several threads."""
    log = NativeLog()
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # stderr is closed: nothing can be written there
        yield log
        return
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            caught.seek(0)
            log.text = caught.read().decode("utf-8", errors="replace")
