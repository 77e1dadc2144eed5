"""A graph's program made ready for coremltools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import legalize

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["prepared"]


def prepared(graph: Graph) -> ExportedProgram:
    """A flat, legalised copy of the graph's program."""
    program = flat_program(graph)
    legalize(program, lambda _node: False)
    refresh_outputs(program)
    return program
