"""How long work tells what it is doing, without knowing who listens.

The API is silent by default; the command line passes an object that draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "Silent", "Step"]


class Step(Protocol):
    """One running stage."""

    def advance(self, count: int = 1) -> None:
        """Report `count` more of the stage's steps as done."""
        ...


class Progress(Protocol):
    """Receives stages as they begin and end."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Step]:
        """Enter a stage of `total` steps (None: not counted); leaving the context ends it."""
        ...

    def note(self, message: str) -> None:
        """Tell the user something that does not stop the work."""
        ...


class Silent:
    """Progress that goes nowhere."""

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Step]:
        """Do nothing around the stage."""
        yield self

    def advance(self, count: int = 1) -> None:
        """Do nothing."""

    def note(self, message: str) -> None:
        """Do nothing."""
