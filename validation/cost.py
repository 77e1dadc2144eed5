"""What a program costs to evaluate, read from its shapes: no clock, no run.

The figures choose how many cases to try and how many to hold at once, so they
must be the same on every machine; being within a factor of two is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..exporter.graph import Graph
from ..exporter.signature import Dim

__all__ = ["Cost", "CostModel"]

# Stands for a size that only running the model would tell.
_UNKNOWN_SIZE = 16

_MATRIX_OPERATORS = ("linear", "mm", "conv", "matmul", "einsum", "attention", "lstm", "gru", "rnn")


@dataclass(frozen=True)
class Cost:
    """`operations`: multiply-adds and touched elements; `peak_bytes`: live activations."""

    operations: float
    peak_bytes: float


class CostModel:
    """Evaluates a graph's cost at any sizes of its dynamic dims; `nodes` counts its operators."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = list(graph.program.graph_module.graph.nodes)
        self._symbols = _dim_symbols(graph)
        self._inputs = set(graph.input_nodes)
        self._freed_at = _freed_at(self._nodes)
        self._known: dict[tuple[tuple[str, int], ...], Cost] = {}
        self.nodes: int = sum(node.op == "call_function" for node in self._nodes)

    def at(self, sizes: Mapping[str, int]) -> Cost:
        """Cost with each dim (by name) at the given size."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            self._known[key] = self._evaluate(sizes)
        return self._known[key]

    def _evaluate(self, sizes: Mapping[str, int]) -> Cost:
        values = {symbol: solve(sizes) for symbol, solve in self._symbols.items()}
        operations = live = peak = 0.0
        held: dict[Node, float] = {}
        for node in self._nodes:
            if node.op == "call_function" or node.name in self._inputs:
                tensors = _tensors(node.meta.get("val"))
                elements = [self._elements(tensor, values) for tensor in tensors]
                if node.op == "call_function":
                    operations += sum(elements) * self._depth(node, values)
                if not _is_view(node):
                    held[node] = sum(
                        n * t.element_size() for n, t in zip(elements, tensors, strict=True)
                    )
                    live += held[node]
                    peak = max(peak, live)
            live -= sum(held.pop(dead, 0.0) for dead in self._freed_at.get(node, ()))
        return Cost(operations, peak)

    def _elements(self, tensor: torch.Tensor, values: Mapping[Any, int]) -> float:
        return math.prod(float(_size(s, values)) for s in tensor.shape)

    def _depth(self, node: Node, values: Mapping[Any, int]) -> float:
        """Multiply-adds per output element: the length of the sum behind each."""
        name = str(node.target)
        if not any(word in name for word in _MATRIX_OPERATORS):
            return 1.0
        operands = [t for a in node.all_input_nodes for t in _tensors(a.meta.get("val"))]
        if len(operands) < 2:
            return 1.0
        second = operands[1]
        if "conv" in name or "linear" in name:
            return self._elements(second, values) / max(float(_size(second.shape[0], values)), 1.0)
        return float(_size(operands[0].shape[-1], values)) if operands[0].dim() else 1.0


def _freed_at(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node the values whose memory nothing needs after it; a view holds its base."""
    base: dict[Node, Node] = {}
    last: dict[Node, Node] = {}
    for node in nodes:
        base[node] = node
        if _is_view(node) and node.all_input_nodes:
            base[node] = base[node.all_input_nodes[0]]
        for used in (node, *node.all_input_nodes):
            last[base[used]] = node
    freed: dict[Node, list[Node]] = {}
    for node, user in last.items():
        freed.setdefault(user, []).append(node)
    return freed


def _dim_symbols(graph: Graph) -> dict[Any, Callable[[Mapping[str, int]], int]]:
    """The program's size symbols, each with how to find it from the sizes of the dims."""
    placeholders = {
        node.name: node
        for node in graph.program.graph_module.graph.nodes
        if node.op == "placeholder"
    }
    symbols: dict[Any, Callable[[Mapping[str, int]], int]] = {}
    for name, spec in zip(graph.input_nodes, graph.inputs, strict=True):
        value = placeholders[name].meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for size, dim in zip(value.shape, spec.shape, strict=True):
            if isinstance(dim, Dim) and isinstance(size, torch.SymInt):
                expression = size.node.expr
                if len(expression.free_symbols) == 1:
                    symbols[next(iter(expression.free_symbols))] = _solver(expression, dim.name)
    return symbols


def _solver(expression: Any, name: str) -> Callable[[Mapping[str, int]], int]:
    """Inverts a linear expression of one symbol (`s`, or `32*s` for sizes in steps)."""
    symbol = next(iter(expression.free_symbols))
    offset = int(expression.subs(symbol, 0))
    slope = int(expression.subs(symbol, 1)) - offset
    return lambda sizes: (sizes[name] - offset) // slope


def _size(size: int | torch.SymInt, values: Mapping[Any, int]) -> int:
    if isinstance(size, int):
        return size
    result = size.node.expr.subs(values)
    return int(result) if result.is_number else _UNKNOWN_SIZE


def _tensors(value: Any) -> list[torch.Tensor]:
    return list(_walk(value))


def _walk(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)
