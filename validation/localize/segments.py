"""One operator by itself: a part of the graph between values that are known.

Where an artifact fuses operators the part is the group of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from ...exporter.graph import Graph, placeholder_tensors
from ...targets.watching import Value
from ..evaluation import WIDER, Lane, Policy, attribute, evaluate
from ..jitter import jitter

__all__ = ["Segment", "SegmentEvaluator", "segments_of"]


@dataclass(frozen=True)
class Segment:
    """`value` of the artifact and the node that it is, from the values in `given`.

    given: artifact's name -> node, of the nearest known values upstream (inputs among them).
    nodes: the graph's operators between, in order, `node` last. inner: the artifact's values
    between, in order, `value` last.
    """

    value: Value
    node: Node
    given: Mapping[str, Node]
    nodes: tuple[Node, ...]
    inner: tuple[Value, ...]


def segments_of(
    graph: Graph, values: Sequence[Value], names: Mapping[str, str]
) -> dict[Node, Segment]:
    """The segment of every node whose value the artifact shows.

    Args:
        graph: legalised.
        values: the artifact's, in order.
        names: artifact's value name -> node's name.
    """
    by_name = {node.name: node for node in graph.program.graph_module.graph.nodes}
    order = {node: index for index, node in enumerate(by_name.values())}
    producers = {value.name: value for value in values}
    inputs = dict(zip((spec.name for spec in graph.inputs), graph.input_nodes, strict=True))
    known = {
        name: by_name[node]
        for name, node in {**names, **inputs}.items()
        if node in by_name and (name in producers or name in inputs)
    }
    ranks = {value.name: index for index, value in enumerate(values)}
    found: dict[Node, Segment] = {}
    for name, node in known.items():
        if name not in producers:
            continue
        given, inner = _upstream(producers[name], producers, known)
        between = _between(node, set(given.values()), order)
        found[node] = Segment(
            producers[name],
            node,
            given,
            between,
            tuple(sorted(inner, key=lambda value: ranks[value.name])),
        )
    return dict(sorted(found.items(), key=lambda item: order[item[0]]))


def _upstream(
    value: Value, producers: Mapping[str, Value], known: Mapping[str, Node]
) -> tuple[dict[str, Node], list[Value]]:
    """The nearest known values that `value` is computed from, and what lies between."""
    given: dict[str, Node] = {}
    inner: dict[str, Value] = {value.name: value}
    pending = list(value.inputs)
    while pending:
        name = pending.pop()
        if name in known:
            given[name] = known[name]
        elif name in producers and name not in inner:
            inner[name] = producers[name]
            pending += producers[name].inputs
    return given, list(inner.values())


def _between(node: Node, stops: set[Node], order: Mapping[Node, int]) -> tuple[Node, ...]:
    """Operators from `stops` (or inputs and weights) to `node`, in order."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if current in found or (current in stops and current is not node):
            continue
        if current.op == "placeholder":
            continue
        found.add(current)
        pending += current.all_input_nodes
    return tuple(sorted(found, key=order.__getitem__))


class SegmentEvaluator:
    """Evaluates segments of one graph on given values."""

    def __init__(self, graph: Graph) -> None:
        self._module: GraphModule = graph.program.graph_module
        self._weights = placeholder_tensors(graph.program)
        self._constants = graph.program.constants

    def run(self, segment: Segment, given: Mapping[Node, torch.Tensor], policy: Policy) -> Any:
        """The segment's value under a policy; `given` are as the artifact sees them."""
        lane = Lane("segment", policy, {})
        values: dict[Node, Any] = {
            node: self._entering(node.name, tensor.clone(), policy)
            for node, tensor in given.items()
        }

        def load(item: Any) -> Any:
            if not isinstance(item, Node):
                return item
            if item not in values:
                values[item] = self._constant(item, policy)
            return values[item]

        with torch.no_grad():
            for node in segment.nodes:
                if node.op == "get_attr":
                    values[node] = attribute(self._module, str(node.target), policy)
                    continue
                args = map_aggregate(node.args, load)
                kwargs = map_aggregate(node.kwargs, load)
                values[node] = evaluate(node, args, kwargs, lane)
        return values[segment.node]

    def inputs(self, segment: Segment) -> tuple[Node, ...]:
        """Values that enter the segment and are no weights."""
        inside = set(segment.nodes)
        found: dict[Node, None] = {}
        for node in segment.nodes:
            for used in node.all_input_nodes:
                weight = used.op == "placeholder" and used.name in self._weights
                if used not in inside and not weight:
                    found[used] = None
        return tuple(found)

    def weights(self, nodes: Iterable[Node]) -> dict[Node, torch.Tensor]:
        """Weights that the operators of a segment read."""
        used = {used: None for node in nodes for used in node.all_input_nodes}
        return {node: self._weights[node.name] for node in used if node.name in self._weights}

    def _constant(self, node: Node, policy: Policy) -> Any:
        tensor = self._weights.get(node.name)
        if tensor is None:
            return None
        tensor = tensor.detach()
        if policy.wide:
            return tensor.to(WIDER.get(tensor.dtype, tensor.dtype))
        if policy.weights and tensor.is_floating_point():
            return jitter(tensor, f"{policy.key}/{node.name}", policy.weights, policy.sign)
        return tensor.clone()

    @staticmethod
    def _entering(name: str, tensor: torch.Tensor, policy: Policy) -> torch.Tensor:
        if policy.wide:
            return tensor.to(WIDER.get(tensor.dtype, tensor.dtype))
        if policy.inputs and tensor.is_floating_point():
            return jitter(tensor, f"{policy.key}/{name}", policy.inputs, policy.sign)
        return tensor
