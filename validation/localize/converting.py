"""Operators converted one by one: which of them does a converter get wrong?

Where a format shows nothing inside an artifact, or what it shows is too wrong to be recognised, the
operators of the captured graph can still be converted and run alone, on the inputs that they have
in the truth. What is wrong only in company (a fusion) is not found so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.fx import Node
from torch.fx.node import map_aggregate

from ...errors import IsomorphError
from ...exporter.graph import Graph, placeholder_tensors
from ...targets.base import Signature, Target
from ...targets.watching import Value
from ..arrays import to_numpy
from ..cases import Case
from ..interpreter import AS_CAPTURED, TRUTH, Lane, Lockstep, Policy
from ..parity import as_given
from .measuring import Distance, distance
from .segments import Segment, SegmentEvaluator

__all__ = ["Alone", "first_wrong_alone"]

_NOISE = (AS_CAPTURED, Policy("weights", weights=1), Policy("inputs", inputs=1))

# A format that compiles takes half a minute for one operator: some are tried, not all.
_SECONDS = 60.0

# Values of a case that are kept for it; of a larger network none.
_BYTES = 2**30


@dataclass(frozen=True)
class Alone:
    """An operator that is wrong when it is converted by itself, and what came out then."""

    segment: Segment
    distance: Distance
    value: NDArray[Any]

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """What came out, whatever is given: it was computed from the truth's inputs."""
        return {self.segment.value.name: self.value}


def first_wrong_alone(
    graph: Graph, case: Case, target: Target, options: Any, *, seconds: float = _SECONDS
) -> Alone | None:
    """The first operator of `graph` that `target` converts wrongly by itself; None if none is.

    Of operators that are alike (same operator and arguments, same shapes) the first is tried.

    Args:
        graph: as captured, in float32.
        case: the inputs, on which the artifact is wrong.
        target, options: those that the artifact was converted with.
        seconds: no operator is begun after this time.
    """
    truth = _values(graph, case)
    if truth is None:
        return None
    evaluator = SegmentEvaluator(graph)
    end = time.monotonic() + seconds
    tried = set()
    for segment in _operators(graph):
        needed = evaluator.inputs(segment)
        kind = _kind(segment, truth)
        if kind in tried or any(node not in truth for node in needed):
            continue
        tried.add(kind)
        if time.monotonic() > end:
            return None
        given = {node: truth[node] for node in needed}
        runs = [evaluator.run(segment, given, policy) for policy in (TRUTH, *_NOISE)]
        right, *noise = (to_numpy(run) for run in runs)
        got = _converted(graph, segment, given, target, options)
        if got is None:
            continue
        found = distance(got, right, noise, None)
        if not found.within:
            return Alone(segment, found, got)
    return None


def _values(graph: Graph, case: Case) -> dict[Node, torch.Tensor] | None:
    """Every value of the truth, rounded as the graph has it; None where they are too many."""
    module = graph.program.graph_module
    by_name = {node.name: node for node in module.graph.nodes}
    found: dict[Node, torch.Tensor] = {
        by_name[node]: case.inputs[spec.name].contiguous()
        for node, spec in zip(graph.input_nodes, graph.inputs, strict=True)
    }
    size = 0

    def observe(node: Node, values: Sequence[Any]) -> None:
        nonlocal size
        known = node.meta.get("val")
        if isinstance(values[0], torch.Tensor) and isinstance(known, torch.Tensor):
            size += values[0].nbytes
            if size <= _BYTES:
                found[node] = values[0].to(known.dtype).clone()

    Lockstep(graph).run([Lane(case.name, TRUTH, case.inputs)], observe)
    return found if size <= _BYTES else None


def _operators(graph: Graph) -> Iterator[Segment]:
    """Each operator that gives a tensor; of one that gives several, the part that is read."""
    for node in graph.program.graph_module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        nodes = (node.args[0], node) if "getitem" in str(node.target) else (node,)
        value = Value(node.name, "", "", ())
        yield Segment(value, node, {}, nodes, (value,))


def _kind(segment: Segment, truth: Mapping[Node, torch.Tensor]) -> str:
    """Text that is the same for operators which a converter cannot tell apart but by values."""

    def shown(item: Any) -> Any:
        if not isinstance(item, Node):
            return item
        known = truth.get(item)
        known = item.meta.get("val") if known is None else known
        return (
            f"{known.dtype}{list(known.shape)}" if isinstance(known, torch.Tensor) else str(known)
        )

    return repr(
        [
            (str(node.target), map_aggregate(node.args, shown), map_aggregate(node.kwargs, shown))
            for node in segment.nodes
        ]
    )


class _Operator(nn.Module):
    """The operators of a segment as a module; weights are buffers, other values its inputs."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], inputs: Sequence[Node]) -> None:
        super().__init__()
        self._nodes, self._inputs = tuple(nodes), tuple(inputs)
        weights = placeholder_tensors(graph.program)
        self._weights: dict[str, str] = {}
        for node in nodes:
            for used in node.all_input_nodes:
                if used.name in weights and used.name not in self._weights:
                    self._weights[used.name] = f"weight_{len(self._weights)}"
                    tensor = weights[used.name].detach()
                    self.register_buffer(self._weights[used.name], tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        values: dict[Node, Any] = dict(zip(self._inputs, inputs, strict=True))

        def load(item: Any) -> Any:
            if not isinstance(item, Node):
                return item
            if item in values:
                return values[item]
            name = self._weights.get(item.name)
            return None if name is None else getattr(self, name)

        result = None
        for node in self._nodes:
            function: Any = node.target
            result = function(*map_aggregate(node.args, load), **map_aggregate(node.kwargs, load))
            values[node] = result
        return result


def _converted(
    graph: Graph, segment: Segment, given: Mapping[Node, torch.Tensor], target: Target, options: Any
) -> NDArray[Any] | None:
    """What the operator gives when it is converted alone; None where that cannot be done."""
    from ...exporter.tracing import trace

    module = _Operator(graph, segment.nodes, tuple(given)).eval()
    try:
        alone = trace(module, args=tuple(given.values()))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            artifact = target.convert(alone, options, Path(folder), "alone")
            signature = Signature(artifact.inputs, artifact.outputs)
            with target.open(artifact.path, signature=signature) as session:
                names = [spec.name for spec in alone.inputs]
                feed = {
                    name: as_given(to_numpy(tensor))
                    for name, tensor in zip(names, given.values(), strict=True)
                }
                return session.run(feed)[alone.outputs[0].name]
    except (IsomorphError, RuntimeError, TypeError, ValueError, KeyError):
        return None
