"""Padding, and blocks of an image moved between space, depth and batch."""

from __future__ import annotations

from .call import Operator

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {}
