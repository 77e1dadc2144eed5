"""Imports and uses coremltools without what it says meanwhile."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ...chatter import log_descriptor, muffled

__all__ = ["coremltools", "hushed"]


@lru_cache(maxsize=1)
def coremltools() -> Any:
    """The module. Off macOS it complains about its native parts, and about untested versions."""
    with hushed():
        import coremltools as module
    return module


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """While active, warnings, log lines and progress bars go to the log, where there is one."""
    if log_descriptor() is not None:
        with muffled():
            yield
        return
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
