"""Resizing, resampling and cropping of images."""

from __future__ import annotations

from .call import Operator

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {}
