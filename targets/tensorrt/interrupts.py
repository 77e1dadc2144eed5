"""Ctrl-C while TensorRT works: it calls our logger, and swallows what is raised there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_kept"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """While active, a first interrupt waits for the end; a second one goes where it always did."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    kept: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def keep(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if kept and callable(handler):
            handler(number, frame)
        kept.append(number)

    for number in _SIGNALS:
        if before[number] is not None:  # None: not set from Python, and cannot be set back
            signal.signal(number, keep)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
    if kept:
        signal.raise_signal(kept[0])
