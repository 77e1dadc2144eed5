"""A legalised graph in the place of an artifact: what if the rewriting was wrong?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch.fx import Node

from ...exporter.graph import Graph
from ...targets.closing import Closing
from ...targets.watching import Value
from ..arrays import to_numpy
from ..cases import Case
from ..interpreter import Lane, Lockstep, Policy

__all__ = ["PretendSession", "same_names"]


class PretendSession(Closing):
    """Evaluates a graph in torch and shows all its values; they are called as their nodes."""

    def __init__(self, graph: Graph, case: Case, policy: Policy) -> None:
        self._graph = graph
        self._case = case
        self._policy = policy
        self._inputs = dict(
            zip(graph.input_nodes, (spec.name for spec in graph.inputs), strict=True)
        )

    def values(self) -> tuple[Value, ...]:
        """Every operator's value."""
        return tuple(
            Value(node.name, str(node.target), node.name, self._sources(node))
            for node in self._graph.program.graph_module.graph.nodes
            if node.op == "call_function"
        )

    def _sources(self, node: Node) -> tuple[str, ...]:
        used = [n for n in node.all_input_nodes if n.op == "call_function"]
        inputs = [n for n in node.all_input_nodes if n.name in self._inputs]
        return (*(n.name for n in used), *(self._inputs[n.name] for n in inputs))

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The outputs and `names`, for the case that this was made for."""
        kept: dict[str, NDArray[Any]] = {}
        wanted = set(names)

        def observe(node: Node, values: Sequence[Any]) -> None:
            if node.name in wanted and isinstance(values[0], torch.Tensor):
                kept[node.name] = to_numpy(values[0].clone())

        lane = Lane(self._case.name, self._policy, self._case.inputs)
        (outputs,) = Lockstep(self._graph).run([lane], observe)
        if isinstance(outputs, Exception):
            raise outputs
        return {**{name: to_numpy(v) for name, v in outputs.items()}, **kept}

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """Not needed: what an operator does alone is torch's own."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def same_names(legalised: Graph, captured: Graph) -> dict[str, str]:
    """Nodes that both graphs have, with values of the same type and shape."""
    mine = {node.name: node for node in legalised.program.graph_module.graph.nodes}
    names = {}
    for node in captured.program.graph_module.graph.nodes:
        other = mine.get(node.name)
        if node.op == "call_function" and other is not None and _alike(node, other):
            names[node.name] = node.name
    outputs = zip(legalised.output_nodes, captured.output_nodes, strict=True)
    return {**names, **{a: b for a, b in outputs if mine[a].op == "call_function"}}


def _alike(a: Node, b: Node) -> bool:
    left, right = a.meta.get("val"), b.meta.get("val")
    return (
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.shape == right.shape
        and left.dtype == right.dtype
    )
