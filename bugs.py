"""An exception that nobody expected, as an error with its traceback in a file."""

from __future__ import annotations

import sys
import tempfile
import traceback

from .errors import IsomorphError

__all__ = ["as_bug"]


def as_bug(error: BaseException, where: str = "Isomorph") -> IsomorphError:
    """The error to report for `error`; exit code 1. `where` names whose bug it is."""
    from . import __version__

    with tempfile.NamedTemporaryFile(
        "w", prefix="isomorph-bug-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        trace = "".join(traceback.format_exception(error))
        file.write(f"isomorph {__version__}\n{' '.join(sys.argv)}\n\n{trace}")
    told = IsomorphError(
        f"this is a bug in {where} ({type(error).__name__}: {str(error)[:300]})",
        hint=f"the traceback is in {file.name}; please report it with that file",
    )
    told.__cause__ = error
    return told
