"""Every error a user can meet, each with its exit code and a remedy.

One tree, so that the command line turns any failure into one message and one
number (docs/exit-codes.md). Raise the most specific class, where the fault is
understood, with `hint` saying what to do next.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConversionError",
    "DestinationError",
    "InputFileError",
    "IsomorphError",
    "MissingRequirementError",
    "ParityError",
    "UnprovenError",
    "UnverifiableError",
    "UsageError",
    "first_line",
    "innermost",
]


class IsomorphError(Exception):
    """Base of all errors that Isomorph raises on purpose.

    Args:
        message: what happened and why, in one or two sentences.
        hint: what the user can do about it; shown after the message.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(IsomorphError):
    """A bad flag, input specification, factory, or a shape the model rejects."""

    exit_code = 2


class ParityError(IsomorphError):
    """The artifact was written but does not compute what the eager model computes."""

    exit_code = 3


class ConversionError(IsomorphError):
    """The model cannot be captured, or a target cannot express it."""

    exit_code = 4


class InputFileError(IsomorphError):
    """A checkpoint, artifact or bundle is refused, unreadable, or needs more to be loaded."""

    exit_code = 5


class MissingRequirementError(IsomorphError):
    """This machine lacks a package, a device, or the evidence that was required."""

    exit_code = 6


class UnprovenError(MissingRequirementError):
    """An artifact was checked, and the evidence is less than required; `reports` has the checks."""

    def __init__(self, message: str, *, hint: str | None = None, reports: tuple[Any, ...]) -> None:
        super().__init__(message, hint=hint)
        self.reports = reports


class UnverifiableError(MissingRequirementError):
    """An evaluator cannot tell what the target's own runtime computes; that runtime must."""


class DestinationError(IsomorphError):
    """The destination cannot be written, or is full."""

    exit_code = 7


def first_line(error: BaseException) -> str:
    """The first line of another library's message that says something; else the error's class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def innermost(error: BaseException) -> BaseException:
    """The cause that a chain of other libraries' exceptions began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
