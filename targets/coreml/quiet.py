"""Imports coremltools without what it says while it is imported."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from functools import lru_cache
from typing import Any

__all__ = ["coremltools"]


@lru_cache(maxsize=1)
def coremltools() -> Any:
    """The module. Off macOS it complains about its native parts, and about untested versions."""
    logger = logging.getLogger("coremltools")
    level = logger.level
    said = io.StringIO()
    try:
        logger.setLevel(logging.CRITICAL)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(said),
            contextlib.redirect_stdout(said),
        ):
            warnings.simplefilter("ignore")
            import coremltools as module
    finally:
        logger.setLevel(level)
    return module
