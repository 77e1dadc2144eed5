"""A graph becomes an `.mlpackage`."""

from __future__ import annotations

from pathlib import Path

from ...exporter.graph import Graph
from .prepare import prepared
from .quiet import coremltools

__all__ = ["to_package"]


def to_package(graph: Graph, path: Path) -> None:
    """Convert `graph` and write it at `path`."""
    ct = coremltools()
    program = prepared(graph).run_decompositions({})
    model = ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT32,
        skip_model_load=True,
    )
    model.save(str(path))
