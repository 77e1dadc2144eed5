"""Half precision, made once on a copy of the graph for every target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConversionError

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["lower_precision"]


def lower_precision(graph: Graph, precision: str) -> Graph:
    """A copy of `graph` that computes in "fp16" or "bf16"."""
    raise ConversionError(f"{precision} is not built yet")
