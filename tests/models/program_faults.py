"""Faults that a converter could make, put into a copy of a Graph: usable with any target.

    wrong = faulty(graph, "triple_epsilon")
    artifact = target.convert(wrong, ...)      # judged against the reference of `graph`: must fail

Nodes are edited in a copied program, weights replaced in the copy's state_dict;
the graph that is given stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from isomorph.exporter.graph import Graph, placeholder_tensors
from torch.export import ExportedProgram
from torch.fx import Node

__all__ = ["FAULTS", "faulty"]

aten = torch.ops.aten


def faulty(graph: Graph, fault: str) -> Graph:
    """A copy of `graph` with one fault of `FAULTS` (the first place that has room for it).

    Raises:
        LookupError: the graph has no place for this fault.
    """
    program = graph.copy_program()
    program._state_dict = dict(program.state_dict)
    program._constants = dict(program.constants)
    copied = replace(graph, program=program)
    spoiled = FAULTS[fault](copied)
    spoiled.program.graph_module.recompile()
    return spoiled


def triple_epsilon(graph: Graph) -> Graph:
    """A normalisation's epsilon is three times as large."""
    positions = {aten.layer_norm.default: 4, aten.batch_norm.default: 7, aten.group_norm.default: 4}
    node = _first(graph, *positions)
    position = positions[node.target]
    _demand(len(node.args) > position, "an epsilon that is written out")
    node.update_arg(position, 3 * node.args[position])
    return graph


def tanh_for_erf(graph: Graph) -> Graph:
    """GELU by its tanh formula instead of erf."""
    node = _first(graph, aten.gelu.default)
    _demand(not node.kwargs and len(node.args) == 1, "a GELU by erf")
    node.kwargs = {"approximate": "tanh"}
    return graph


def half_weight(graph: Graph) -> Graph:
    """One weight rounded to half precision."""
    return _replace_weight(graph, lambda w: w.dim() >= 2, lambda w: w.half().float())


def transpose_weight(graph: Graph) -> Graph:
    """One square matrix transposed."""
    return _replace_weight(
        graph, lambda w: w.dim() == 2 and w.shape[0] == w.shape[1], lambda w: w.T.contiguous()
    )


def flip_padding(graph: Graph) -> Graph:
    """Borders repeat the edge instead of reflecting the image."""
    node = _first(graph, aten.pad.default)
    _demand("reflect" in node.args, "reflected padding")
    node.args = tuple("replicate" if value == "reflect" else value for value in node.args)
    return graph


def swapped_outputs(graph: Graph) -> Graph:
    """Two outputs of one shape and dtype exchanged; their names stay."""
    for i, first in enumerate(graph.outputs):
        for j, second in enumerate(graph.outputs[:i]):
            if (first.shape, first.dtype) == (second.shape, second.dtype):
                nodes = list(graph.output_nodes)
                nodes[i], nodes[j] = nodes[j], nodes[i]
                return replace(graph, output_nodes=tuple(nodes))
    raise LookupError("no two outputs of one shape and dtype")


def frozen_axis(graph: Graph) -> Graph:
    """A size that is read from an input is the example's, whatever comes in."""
    node = _first(graph, aten.sym_size.int)
    size: Any = node.meta["val"]
    node.replace_all_uses_with(size.node.hint)  # type: ignore[arg-type]
    return graph


FAULTS: dict[str, Callable[[Graph], Graph]] = {
    fault.__name__: fault
    for fault in (
        *(triple_epsilon, tanh_for_erf, half_weight, transpose_weight, flip_padding),
        *(swapped_outputs, frozen_axis),
    )
}


def _first(graph: Graph, *operators: Any) -> Node:
    for node in _nodes(graph.program):
        if node.target in operators:
            return node
    raise LookupError(f"the graph has no {' or '.join(map(str, operators))}")


def _nodes(program: ExportedProgram) -> Iterator[Node]:
    yield from program.graph_module.graph.nodes


def _demand(found: bool, what: str) -> None:
    if not found:
        raise LookupError(f"the graph has no {what}")


def _replace_weight(
    graph: Graph,
    fits: Callable[[torch.Tensor], bool],
    spoil: Callable[[torch.Tensor], torch.Tensor],
) -> Graph:
    used = {n.name for n in _nodes(graph.program) if n.op == "placeholder" and n.users}
    behind = placeholder_tensors(graph.program)
    by_identity = {id(tensor) for name, tensor in behind.items() if name in used}
    for tensors in (graph.program.state_dict, graph.program.constants):
        for name, tensor in tensors.items():
            if id(tensor) not in by_identity or tensor.dtype != torch.float32 or not fits(tensor):
                continue
            spoiled = spoil(tensor.detach())
            if not torch.equal(spoiled, tensor):
                kept = isinstance(tensor, torch.nn.Parameter)
                tensors[name] = torch.nn.Parameter(spoiled, False) if kept else spoiled
                return graph
    raise LookupError("the graph has no weight for this fault")
