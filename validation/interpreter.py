"""Evaluates a captured program several times at once, node by node in lockstep.

A *lane* is one evaluation: one case's inputs under one policy (float64, or
float32 with some noise). All lanes pass a node before any passes the next, so a
weight is widened or jittered once for all lanes that want it so, and dropped
after its last use: memory stays near one model's weights, which remain mapped,
plus the lanes' activations. Nothing here writes to a weight or an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from ..exporter.graph import Graph, placeholder_tensors
from .evaluation import AS_CAPTURED, TRUTH, WIDER, Lane, Policy, attribute, evaluate
from .jitter import jitter

__all__ = ["AS_CAPTURED", "TRUTH", "Lane", "LaneError", "Lockstep", "Policy"]

# Weights that later nodes use again stay materialised up to this many bytes.
_CACHE_BYTES = 128 * 2**20


class LaneError(Exception):
    """A lane stopped: `node` cannot be evaluated under its policy."""

    def __init__(self, node: Node, cause: BaseException) -> None:
        super().__init__(f"{node.target}: {str(cause).splitlines()[0] if str(cause) else cause!r}")
        self.node = node
        self.cause = cause


class Lockstep:
    """An evaluator for one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._module = graph.program.graph_module
        self._weights = placeholder_tensors(graph.program)
        self._constants = graph.program.constants
        self._inputs = dict(
            zip(graph.input_nodes, (spec.name for spec in graph.inputs), strict=True)
        )
        self._nodes = [n for n in self._module.graph.nodes if n.op != "output"]
        self._dead_after = _dead_after(self._nodes, keep=set(graph.output_nodes))
        self._guarded = {_storage(tensor) for tensor in self._weights.values()} - {0}

    def run(
        self,
        lanes: Sequence[Lane],
        observe: Callable[[Node, Sequence[Any]], None] = lambda node, values: None,
    ) -> list[dict[str, torch.Tensor] | LaneError]:
        """Evaluate all lanes; per lane its outputs by name, or why it stopped.

        `observe` is told each operator's node and its values, one a lane (None where it stopped).
        """
        run = _Run(self._module, lanes, self._guarded)
        with torch.no_grad():
            for node in self._nodes:
                if node.op == "placeholder":
                    self._enter(node, run)
                else:
                    observe(node, run.evaluate(node))
                for dead in self._dead_after.get(node, ()):
                    run.drop(dead)
        results: list[dict[str, torch.Tensor] | LaneError] = []
        by_name = {node.name: node for node in self._nodes}
        for index in range(len(lanes)):
            failure = run.failures.get(index)
            if failure is not None:
                results.append(failure)
                continue
            results.append(
                {
                    spec.name: torch.as_tensor(run.value(by_name[name], index))
                    for name, spec in zip(
                        self._graph.output_nodes, self._graph.outputs, strict=True
                    )
                }
            )
        return results

    def _enter(self, node: Node, run: _Run) -> None:
        if node.name in self._inputs:
            run.enter_input(node, self._inputs[node.name])
        elif node.name in self._weights:
            run.enter_weight(node, self._weights[node.name])
        else:
            run.enter_constant(node, self._constant(node.name))

    def _constant(self, name: str) -> Any:
        """What a placeholder stands for that is neither tensor nor input: None, number, object."""
        for spec in self._graph.program.graph_signature.input_specs:
            if getattr(spec.arg, "name", None) == name and spec.target is not None:
                return self._constants.get(spec.target)
        return None


class _Run:
    """Values of all lanes while they pass through the nodes."""

    def __init__(self, module: GraphModule, lanes: Sequence[Lane], guarded: set[int]) -> None:
        self.failures: dict[int, LaneError] = {}
        self._module = module
        self._lanes = lanes
        self._guarded = set(guarded)
        self._values: dict[Node, list[Any]] = {}
        self._weights: dict[Node, torch.Tensor] = {}
        self._materialised: dict[tuple[Node, Policy], torch.Tensor] = {}
        self._by_policy: dict[Policy, list[int]] = {}
        for index, lane in enumerate(lanes):
            self._by_policy.setdefault(lane.policy, []).append(index)

    def enter_input(self, node: Node, name: str) -> None:
        values = [_prepare_input(lane, name) for lane in self._lanes]
        self._guarded |= {_storage(value) for value in values} - {0}
        self._values[node] = values

    def enter_weight(self, node: Node, tensor: torch.Tensor) -> None:
        self._weights[node] = tensor.detach()

    def enter_constant(self, node: Node, value: Any) -> None:
        self._values[node] = [value] * len(self._lanes)

    def value(self, node: Node, index: int) -> Any:
        """A node's value in a lane; a weight is made for the lane's policy on demand."""
        if node in self._values:
            return self._values[node][index]
        return self._weight(node, self._lanes[index].policy)

    def drop(self, node: Node) -> None:
        self._values.pop(node, None)
        if self._weights.pop(node, None) is not None:
            for key in [k for k in self._materialised if k[0] is node]:
                self._forget(key)

    def evaluate(self, node: Node) -> list[Any]:
        """Evaluate one node in every lane that still runs; its values."""
        results: list[Any] = [None] * len(self._lanes)
        for indices in self._by_policy.values():
            for index in indices:
                if index in self.failures:
                    continue
                try:
                    results[index] = self._evaluate(node, index)
                except Exception as error:  # noqa: BLE001 - whatever an operator raises ends its lane
                    self.failures[index] = LaneError(node, error)
            self._shrink_cache()
        self._values[node] = results
        return results

    def _evaluate(self, node: Node, index: int) -> Any:
        lane = self._lanes[index]
        if node.op == "get_attr":
            return attribute(self._module, str(node.target), lane.policy)

        def load(item: Any) -> Any:
            return self.value(item, index) if isinstance(item, Node) else item

        def own(item: Node, copy: torch.Tensor) -> None:
            if item not in self._values:
                self._values[item] = [self.value(item, i) for i in range(len(self._lanes))]
            self._values[item][index] = copy

        args, kwargs = _unshared(node, load, own, self._guarded)
        return evaluate(node, args, kwargs, lane)

    def _weight(self, node: Node, policy: Policy) -> torch.Tensor:
        tensor = self._weights[node]
        if not _changes(tensor, policy):
            return tensor
        key = (node, policy)
        made = self._materialised.pop(key, None)
        if made is None:
            if policy.wide:
                made = tensor.to(WIDER[tensor.dtype])
            else:
                name = f"{policy.key}/{node.name}"
                made = jitter(tensor, name, policy.weights, policy.sign)
            self._guarded.add(_storage(made))
        self._materialised[key] = made
        return made

    def _shrink_cache(self) -> None:
        """Forget the materialised weights unused for longest, down to the budget."""
        total = sum(tensor.nbytes for tensor in self._materialised.values())
        for key in list(self._materialised):
            if total <= _CACHE_BYTES:
                return
            total -= self._materialised[key].nbytes
            self._forget(key)

    def _forget(self, key: tuple[Node, Policy]) -> None:
        self._guarded.discard(_storage(self._materialised.pop(key)))


def _dead_after(nodes: Sequence[Node], keep: set[str]) -> dict[Node, list[Node]]:
    """For each node the values that nothing needs once it is evaluated."""
    last: dict[Node, Node] = {}
    for node in nodes:
        last[node] = node
        for used in node.all_input_nodes:
            last[used] = node
    dead: dict[Node, list[Node]] = {}
    for node, user in last.items():
        if node.name not in keep and not (node.op == "placeholder" and user is node):
            dead.setdefault(user, []).append(node)
    return dead


def _prepare_input(lane: Lane, name: str) -> torch.Tensor:
    """A lane's own contiguous input: strides are the eager model's concern, not the numbers'."""
    tensor = lane.inputs[name].contiguous()
    policy = lane.policy
    if policy.wide:
        return tensor.to(WIDER.get(tensor.dtype, tensor.dtype))
    if policy.inputs:
        name = f"{policy.key}/{lane.case}/{name}"
        return jitter(tensor, name, policy.inputs, policy.sign, whole=policy.whole)
    return tensor


def _changes(tensor: torch.Tensor, policy: Policy) -> bool:
    if policy.wide:
        return tensor.dtype in WIDER
    return policy.weights > 0 and (tensor.is_floating_point() or tensor.is_complex())


def _unshared(
    node: Node,
    load: Callable[[Any], Any],
    own: Callable[[Node, torch.Tensor], None],
    guarded: set[int],
) -> tuple[Any, Any]:
    """Arguments of a node; one that it would write to is copied first if others share it.

    The captured program never writes to a weight or input (see `Graph`); this
    keeps a user's model whole should an operator do so through a view.
    """
    for item in _written(node):
        value = load(item)
        if isinstance(value, torch.Tensor) and _storage(value) in guarded:
            own(item, value.clone())
    return map_aggregate(node.args, load), map_aggregate(node.kwargs, load)


def _written(node: Node) -> Iterator[Node]:
    """Arguments of a node whose memory its operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or node.target is torch.ops.aten.detach_.default:
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            yield value


def _storage(value: Any) -> int:
    """Address of a tensor's memory; 0 where it has none."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0
