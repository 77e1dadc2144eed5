"""How operators that coremltools lacks are written in ones that it has."""

from __future__ import annotations

from ...exporter.rules import RULES as _SHARED

__all__ = ["RULES"]

RULES = dict(_SHARED)
