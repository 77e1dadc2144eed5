"""Engines whose native code may be loaded: those that this process built.

An engine for several versions carries TensorRT's lean runtime, which is a library: whoever loads
it runs what is in the file. The runtime refuses it unless it is told that the file is trusted.
"""

from __future__ import annotations

import hashlib
from typing import Any

__all__ = ["is_own", "remember"]

_own: set[bytes] = set()


def remember(engine: Any) -> None:
    """Trust these bytes until the process ends."""
    _own.add(hashlib.sha256(engine).digest())


def is_own(engine: Any) -> bool:
    """Whether `remember` was given these bytes."""
    return bool(_own) and hashlib.sha256(engine).digest() in _own
