"""Sorting, choosing and counting: topk, argsort, non_zero, one_hot, non_maximum_suppression."""

from __future__ import annotations

from .call import Operator

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {}
