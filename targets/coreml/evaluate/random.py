"""Operators that draw random numbers: what they give cannot be compared."""

from __future__ import annotations

from .call import Operator

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {}
