"""Whether float32 products on a GPU may round their factors to the 10 bits of TF32.

Off unless somebody asked for it: whoever opens and runs an artifact says so here, and sessions ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["allowing_tf32", "tf32_allowed"]

_ALLOWED: ContextVar[bool] = ContextVar("isomorph_tf32", default=False)


def tf32_allowed() -> bool:
    """What sessions that are opened and run now shall do."""
    return _ALLOWED.get()


@contextmanager
def allowing_tf32(allowed: bool) -> Iterator[None]:
    """Allow TF32, or not, in the body."""
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)
