"""How long the stages of an export took, for each format by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..progress import Progress, Step

__all__ = ["Clock"]

# Stages that are gone through once, whatever the number of formats.
_SHARED = ("load", "capture")

# What stages are called while one of several formats is made.
_PER_FORMAT = {"convert": "convert to {}", "parity": "run the {} artifact", "write": "write {}"}


class Clock:
    """Passes stages on to the listener and keeps how long each took, in seconds."""

    def __init__(self, listener: Progress) -> None:
        self._listener = listener
        self._seconds: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._format: str | None = None

    def begin(self, format: str | None) -> None:
        """From now on, time belongs to one format; its name is told with the stages' if given."""
        self._before = dict(self._seconds)
        self._format = format

    def own_seconds(self) -> dict[str, float]:
        """What the present format took, with what all of them share (load and capture)."""
        taken = {}
        for stage, seconds in self._seconds.items():
            own = seconds - self._before.get(stage, 0.0)
            if stage in _SHARED:
                taken[stage] = seconds
            elif own > 0:
                taken[stage] = own
        return taken

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Step]:
        start = time.perf_counter()
        try:
            with self._listener.stage(self._label(name), total) as step:
                yield step
        finally:
            taken = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + taken

    def _label(self, name: str) -> str:
        if self._format is None or name not in _PER_FORMAT:
            return name
        return _PER_FORMAT[name].format(self._format)

    def note(self, message: str) -> None:
        self._listener.note(message)
