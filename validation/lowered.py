"""The noise floor of a graph in half precision, against the truth of the model."""

from __future__ import annotations

from ..exporter.graph import Graph
from ..progress import Progress
from .expected import Reference

__all__ = ["lowered_reference"]


def lowered_reference(reference: Reference, graph: Graph, progress: Progress) -> Reference:
    """`reference` with the noise floor of the half-precision `graph`."""
    raise NotImplementedError
