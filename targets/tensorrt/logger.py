"""TensorRT's one logger: what it says goes to Python's logging, and its errors to who builds.

The libraries keep the first logger that they are given and ignore later ones, so there is one for
each product and process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["collected_errors", "logger_of", "unheard"]

_LEVELS = {
    "INTERNAL_ERROR": logging.ERROR,
    "ERROR": logging.ERROR,
    "WARNING": logging.WARNING,
    "INFO": logging.INFO,
    "VERBOSE": logging.DEBUG,
}

_collectors: list[list[str]] = []
_unheard: list[None] = []


@cache
def logger_of(module: Any) -> Any:
    """The logger of `tensorrt` or `tensorrt_rtx`, which feeds `logging` under the module's name."""
    python_logger = logging.getLogger(f"isomorph.{module.__name__}")
    python_logger.addHandler(logging.NullHandler())

    class _Logger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

        def log(self, severity: Any, message: str) -> None:
            level = logging.DEBUG if _unheard else _LEVELS.get(severity.name, logging.INFO)
            if level >= logging.ERROR:
                for errors in _collectors:
                    errors.append(message)
            python_logger.log(level, "%s", message)

    return _Logger()


@contextmanager
def collected_errors() -> Iterator[list[str]]:
    """The messages of severity ERROR and INTERNAL_ERROR that come while active, in order."""
    errors: list[str] = []
    _collectors.append(errors)
    try:
        yield errors
    finally:
        _collectors.remove(errors)


@contextmanager
def unheard() -> Iterator[None]:
    """While active, whatever the library says is said as for debugging, and is no error.

    For reading networks: getters complain about properties that are not set.
    """
    _unheard.append(None)
    try:
        yield
    finally:
        _unheard.pop()
