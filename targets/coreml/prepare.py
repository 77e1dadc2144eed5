"""A graph's program made ready for coremltools: only operators that it takes, and takes right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...exporter.decompositions import decompose
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import legalize
from ..base import Unsupported
from .faults import fault
from .registry import takes, untranslated
from .rules import RULES

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["find_unsupported", "prepared"]


def prepared(graph: Graph) -> ExportedProgram:
    """A flat copy of the graph's program, legalised for coremltools."""
    program = flat_program(graph)
    legalize(program, _supported, RULES, decompose)
    refresh_outputs(program)
    return program


def find_unsupported(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a prepared program that coremltools cannot take."""
    return untranslated(program)


def _supported(node: Node) -> bool:
    return takes(node) and not fault(node)
