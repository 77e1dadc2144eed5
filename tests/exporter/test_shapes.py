"""What one target finds out about sizes is not what the next one reads."""

from __future__ import annotations

import isomorph
import torch
from isomorph.exporter.shapes import shapes_kept
from torch.utils._sympy.value_ranges import ValueRanges


def test_guards_and_narrowed_ranges_are_undone():
    model = torch.nn.Linear(4, 3)
    graph = isomorph.trace(model, args=(torch.randn(2, 4),), dynamic={"input.0": "batch:1..16"})
    nodes = {node.name: node for node in graph.program.graph.nodes}
    batch = nodes[graph.input_nodes[0]].meta["val"].shape[0]
    environment, symbol = batch.node.shape_env, batch.node.expr
    before = environment.var_to_range[symbol], len(environment.guards)
    for _ in range(2):
        with shapes_kept(graph):
            assert bool(batch < 16)
            environment.var_to_range[symbol] &= ValueRanges(2, 15)
            environment.replacements[symbol] = symbol * 1
            assert environment.var_to_range[symbol].upper == 15
        assert (environment.var_to_range[symbol], len(environment.guards)) == before
        assert symbol not in environment.replacements
