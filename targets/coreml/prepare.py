"""A graph's program made ready for coremltools: only operators that it takes, and takes right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch.utils._pytree import tree_leaves

from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import drop_checks, legalize, rewrite
from ...exporter.rules.fourier import fourier_to_products
from ..base import Unsupported
from .faults import fault
from .merging import merge_axes
from .pooling import give_strides
from .registry import takes, untranslated
from .rules import RULES, otherwise

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["find_unsupported", "prepared", "rewritten"]


def prepared(graph: Graph) -> ExportedProgram:
    """A flat copy of the graph's program, legalised for coremltools."""
    program = flat_program(graph)
    fourier_to_products(program)
    merge_axes(program)
    if not legalize(program, _supported, RULES, otherwise):
        # Something is written into a part of a tensor: only torch's own pass makes that functional.
        program = program.run_decompositions({})
        drop_checks(program)  # a retrace writes the assertions back
        legalize(program, _supported, RULES, otherwise)
    give_strides(program)
    _rename_what_reads_like_a_mode(program)
    refresh_outputs(program)
    return program


def rewritten(program: ExportedProgram, nodes: Iterable[Node]) -> list[Node]:
    """Rewrite in place operators that coremltools turned out not to take; returns what is left."""
    kept = rewrite(program, nodes, _supported, RULES, otherwise)
    _rename_what_reads_like_a_mode(program)
    return kept


def _rename_what_reads_like_a_mode(program: ExportedProgram) -> None:
    """Give nodes other names than the string arguments of operators.

    coremltools 9.0 looks a string up among the values by name: after a node called `tanh`,
    `gelu(x, approximate="tanh")` is written as the exact GELU.
    """
    graph = program.graph_module.graph
    texts = {
        leaf
        for node in graph.nodes
        for leaf in tree_leaves((node.args, node.kwargs))
        if isinstance(leaf, str)
    }
    for node in graph.nodes:
        if node.op == "call_function" and node.name in texts:
            node.name = f"{node.name}_value"  # fx keeps it unique


def find_unsupported(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a prepared program that coremltools cannot take."""
    return untranslated(program)


def _supported(node: Node) -> bool:
    return takes(node) and not fault(node)
