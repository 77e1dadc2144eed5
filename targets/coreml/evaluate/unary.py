"""Elementwise operators of one tensor: arithmetic, rounding, logic, casts."""

from __future__ import annotations

from .call import Operator

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {}
