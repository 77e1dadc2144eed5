"""Converts with coremltools, and rewrites the operators that its translations fail on.

Whether a translation takes the arguments of a node shows only when it is tried. What it refuses,
or leaves an argument of unread, is decomposed on the copy of the graph, and it is tried again.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...exporter.flattening import refresh_outputs
from ...exporter.nodes import tensor_value
from ...exporter.shapes import environments_of, sizes_kept
from ..unsupported import cannot_express, unsupported
from .failures import failing_node
from .prepare import rewritten
from .watching import ArgumentsLeftOut, watching

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["converted"]

_ATTEMPTS = 50
# A reshape to too many axes becomes a view, and that a reshape: rewriting leads nowhere.
_FAILURES_OF_A_FORM = 3


def converted(program: ExportedProgram, convert: Callable[[], Any]) -> Any:
    """What `convert` returns, once coremltools takes every operator of `program` right.

    Raises:
        ConversionError: a translation leaves an argument out, and nothing can take its place.
        Exception: whatever coremltools raises where nothing can be rewritten.
    """
    environments = environments_of(program)
    failures: Counter[Any] = Counter()
    for _ in range(_ATTEMPTS):
        try:
            # A translation may ask about a size; the next attempt must not read its answer.
            with sizes_kept(environments), watching(partial(_matters, program)):
                return convert()
        except ArgumentsLeftOut as left:
            if kept := _replace(program, [n for n in program.graph.nodes if n.name in left.names]):
                told = {node: ", ".join(sorted(left.names[node.name])) for node in kept}
                raise cannot_express(
                    "Core ML",
                    [unsupported(n, f"coremltools leaves {what} out") for n, what in told.items()],
                ) from None
        except Exception as error:
            node = failing_node(program, error)
            if node is not None and node.target is operator.getitem:
                (node,) = node.all_input_nodes  # a result that its translation did not make
            if node is None:
                raise
            failures[str(_form(node))] += 1
            if failures[str(_form(node))] > _FAILURES_OF_A_FORM:
                raise
            if _replace(program, _alike(program, node)):
                raise
    return convert()


def _matters(program: ExportedProgram, name: str, keyword: str) -> bool:
    """Whether an operator computes something else without an argument that it was given."""
    node = next(node for node in program.graph.nodes if node.name == name)
    if keyword == "dtype":
        values = [tensor_value(item) for item in (node, *node.args[:1])]
        known = [value.dtype for value in values if value is not None]
        return len(known) != 2 or known[0] != known[1]
    for argument in node.target._schema.arguments:
        if argument.name == keyword and argument.has_default_value():
            return bool(argument.default_value != node.kwargs[keyword])
    return True


def _replace(program: ExportedProgram, nodes: Iterable[Node]) -> list[Node]:
    """Rewrite nodes in place; returns those that cannot be."""
    kept = rewritten(program, nodes)
    refresh_outputs(program)
    return kept


def _alike(program: ExportedProgram, node: Node) -> list[Node]:
    """`node` and those that will fail as it did, so that each need not be tried."""
    return [n for n in program.graph.nodes if n.op == node.op and _form(n) == _form(node)]


def _form(node: Node) -> Any:
    def form(item: Any) -> Any:
        value = tensor_value(item)
        if value is not None:
            return (value.dtype, value.dim())
        return type(item)

    return node.target, tuple(map(form, node.args)), tuple(sorted(node.kwargs))
