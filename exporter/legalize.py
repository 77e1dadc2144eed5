"""Rewrite ATen operators that a target lacks into ones it has, node by node.

A full retrace (`run_decompositions`) costs seconds and loses names; most
captured programs need only a few local rewrites. Each rewrite keeps the node's
provenance (module path, source line), so that an error or a parity report
still points at the user's code. What no rule covers stays as it is: the target
then falls back to a retrace, or reports the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, Node

from .complex_pairs import complex_to_pairs
from .inplace import functionalize, is_mutating
from .nodes import Editor
from .rules.common import ALWAYS, CHECKS, RULES, Rule
from .shapes import environments_of, for_all_sizes

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Supported", "drop_checks", "is_mutating", "legalize", "rewrite"]

Supported = Callable[[Node], bool]
"""Whether the target can take a node as it is."""


def legalize(
    program: ExportedProgram,
    supported: Supported,
    rules: Mapping[Any, Rule] = RULES,
    fallback: Rule | None = None,
) -> bool:
    """Rewrite `program`'s graph in place; pass a copy (`Graph.copy_program()`).

    First in-place operators on intermediate values become functional ones where
    nothing else reads what they wrote to; then operators that do nothing at
    inference go; complex values become pairs of real ones; then every node that
    `supported` denies is rewritten if a rule knows how; `rules` are the ones known
    here unless a target brings its own. What no rule rewrites goes to `fallback`
    (`decompositions.decompose`). With a fallback, what a rewrite made is rewritten in turn.

    Returns:
        True if no mutating operator remains. Otherwise only the first step was
        done, because the others assume that views and copies may be exchanged.
    """
    graph = program.graph_module.graph
    functionalize(graph)
    graph.eliminate_dead_code()  # results that nothing reads would hold rules back
    calls = [node for node in graph.nodes if node.op == "call_function"]
    functional = not any(map(is_mutating, calls))
    if functional:
        complex_to_pairs(program)
        calls = [node for node in graph.nodes if node.op == "call_function"]
        editor, sizes = Editor(graph), environments_of(program)
        for node in calls:
            _rewrite(editor, node, supported, rules, fallback, sizes)
        graph.eliminate_dead_code()
    program.graph_module.recompile()
    return functional


def rewrite(
    program: ExportedProgram,
    nodes: Iterable[Node],
    supported: Supported,
    rules: Mapping[Any, Rule] = RULES,
    fallback: Rule | None = None,
) -> list[Node]:
    """Rewrite these nodes of a legalised program in place, whether they are supported or not.

    Returns:
        Those that neither a rule nor `fallback` rewrites; they stay as they are.
    """
    graph = program.graph_module.graph
    editor, sizes = Editor(graph), environments_of(program)
    denied = dict.fromkeys(nodes)  # in order: names, and so the bytes of files, follow from it

    def allowed(node: Node) -> bool:
        return node not in denied and supported(node)

    kept = [node for node in denied if not _rewrite(editor, node, allowed, rules, fallback, sizes)]
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return kept


def drop_checks(program: ExportedProgram) -> None:
    """Erase assertions on values and sizes in place, and what was computed for them alone.

    `legalize` does so as well, but a retrace (`run_decompositions`) writes those on sizes anew.
    """
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        if not isinstance(graph, Graph):
            continue
        checks = [node for node in graph.nodes if node.target in CHECKS]
        for node in checks:
            graph.erase_node(node)
        if checks:
            graph.eliminate_dead_code()
            module.recompile()


# How many rewrites may follow from one: torch's own decompositions nest a few levels deep.
_DEPTH = 12


def _rewrite(
    editor: Editor,
    node: Node,
    supported: Supported,
    rules: Mapping[Any, Rule],
    fallback: Rule | None,
    sizes: Sequence[Any],
    depth: int = 0,
) -> bool:
    """Whether `node` was rewritten.

    A rewrite that holds for some sizes only is none; `sizes` are the program's environments.
    """

    def written(rule: Rule) -> Any:
        return for_all_sizes(sizes, lambda: rule(editor, node))

    target: Any = node.target
    if target in CHECKS:
        node.graph.erase_node(node)
        return True
    value = None
    rule = ALWAYS.get(target)
    if rule is not None:
        value = written(rule)
    elif not supported(node):
        rule = rules.get(target)
        value = written(rule) if rule is not None else None
        if value is None and fallback is not None:
            value = written(fallback)
    if value is None:
        return False
    made = editor.replace(node, value)
    if fallback is not None and depth < _DEPTH:
        for new in made:
            _rewrite(editor, new, supported, rules, fallback, sizes, depth + 1)
    return True
