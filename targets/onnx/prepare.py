"""A graph's program made ready for torch's ONNX translations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, innermost
from ...exporter.decompositions import decompose
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.inplace import is_mutating
from ...exporter.legalize import legalize
from ...exporter.rules.common import Rule
from ...exporter.rules.fourier import fourier_to_products
from ...exporter.rules.merging import EVERY_RULE, merged
from ..base import Unsupported
from ..unsupported import unsupported
from . import torchlib
from .dialect import PLAIN, Dialect
from .sizes import inexact_sizes
from .translations import custom_translations, fault

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = [
    "decomposed",
    "faulty",
    "find_unsupported",
    "lacking",
    "prepared",
    "registry",
    "translation_errors",
]


@cache
def registry(opset: int) -> torchlib.Registry:
    """What the installed torchlib and we translate at an opset."""
    return torchlib.Registry(custom_translations(), opset)


def prepared(graph: Graph, opset: int, dialect: Dialect = PLAIN) -> ExportedProgram:
    """A flat copy of the graph's program, legalised as far as possible without a retrace."""
    program = _legalized(_flat(graph, dialect), opset, dialect, decompose)
    if not torchlib.fast_path_available() or not lacking(program, opset):
        return program
    # torch cannot retrace the prims that its tables end in, so what is retraced has none.
    return _legalized(_flat(graph, dialect), opset, dialect)


def _flat(graph: Graph, dialect: Dialect) -> ExportedProgram:
    program = flat_program(graph)
    if dialect.fourier:
        fourier_to_products(program)
    return program


@contextmanager
def translation_errors() -> Iterator[None]:
    """torch raises anything here; tell the innermost cause."""
    try:
        yield
    except Exception as error:
        cause = innermost(error)
        text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise ConversionError(
            f"torch's ONNX translation failed: {text}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error


def decomposed(program: ExportedProgram, opset: int, dialect: Dialect = PLAIN) -> ExportedProgram:
    """`program` retraced with torch's decompositions of all that has no translation, legalised.

    Raises:
        ConversionError: torch cannot retrace it.
    """
    wrong = {
        node.target for node in program.graph.nodes if node.op == "call_function" and fault(node)
    }
    with translation_errors():
        retraced = program.run_decompositions(_decompositions(opset, wrong))
    return _legalized(retraced, opset, dialect, decompose)


def find_unsupported(graph: Graph, opset: int, dialect: Dialect = PLAIN) -> list[Unsupported]:
    """Operators that have no right translation, after rewrites and torch's decompositions."""
    program = prepared(graph, opset, dialect)
    if inexact := inexact_sizes(program):
        return inexact
    if lacking(program, opset):
        program = decomposed(program, opset, dialect)
    return [*lacking(program, opset), *inexact_sizes(program)]


def faulty(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a program that torch's exporter would translate wrongly."""
    return [
        unsupported(node, reason)
        for node in program.graph.nodes
        if node.op == "call_function" and (reason := fault(node))
    ]


def lacking(program: ExportedProgram, opset: int) -> list[Unsupported]:
    """Operators of a program that cannot be translated as they are."""
    found = []
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", _NoGraph).nodes:
            if node.op != "call_function":
                continue
            reason = fault(node)
            if reason or is_mutating(node) or not registry(opset).takes(node):
                if not reason and torchlib.has_complex_operand(node):
                    reason = "of complex numbers"
                found.append(unsupported(node, reason))
    return found


class _NoGraph:
    """Stands for the graph of a module that has none."""

    nodes: tuple[Node, ...] = ()


def _legalized(
    program: ExportedProgram, opset: int, dialect: Dialect, fallback: Rule | None = None
) -> ExportedProgram:
    def supported(node: Node) -> bool:
        written = registry(opset).takes(node) and not fault(node)
        return written and not dialect.refuses(node)

    def unknown(_: Node) -> bool:
        """Without a look into torch's registry every rule is applied; all are exact."""
        return False

    if torchlib.fast_path_available():
        legalize(program, supported, merged(dialect.rules, EVERY_RULE), fallback)
    else:
        legalize(program, unknown)
    refresh_outputs(program)
    return program


def _decompositions(opset: int, wrong: set[Any]) -> dict[Any, Any]:
    """torch's decompositions of what has no translation of its own, or is in `wrong`."""
    import torch

    table: dict[Any, Any] = dict(torch._decomp.decomposition_table)
    table.update(torch.export.default_decompositions().items())
    return {
        target: function
        for target, function in table.items()
        if hasattr(target, "_schema") and (target in wrong or not registry(opset).has(target))
    }
