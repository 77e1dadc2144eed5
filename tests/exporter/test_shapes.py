"""What one target finds out about sizes is not what the next one reads."""

from __future__ import annotations

import isomorph
import pytest
import torch
from isomorph.exporter.shapes import environments_of, for_all_sizes, shapes_kept
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


def test_a_size_that_was_fixed_is_symbolic_again():
    graph = isomorph.trace(
        torch.nn.Linear(4, 3), args=(torch.randn(2, 4),), dynamic={"input.0": "batch:1..16"}
    )
    first = next(node for node in graph.program.graph.nodes if node.name in graph.input_nodes)
    batch = first.meta["val"].shape[0]
    name = str(batch)
    with shapes_kept(graph):
        assert int(batch) == 2
        assert str(batch) == "2"
    assert str(batch) == name


@pytest.fixture
def batch():
    """A size of 2, of which nothing but its range is known, and its environment."""
    graph = isomorph.trace(
        torch.nn.Linear(4, 3), args=(torch.randn(2, 4),), dynamic={"input.0": "batch:1..16"}
    )
    nodes = {node.name: node for node in graph.program.graph.nodes}
    return nodes[graph.input_nodes[0]].meta["val"].shape[0], environments_of(graph.program)


@pytest.mark.parametrize(
    "ask",
    [
        lambda batch: batch == 2,
        lambda batch: batch != 3,
        lambda batch: batch < 7,
        lambda batch: int(batch) > 0,
    ],
)
def test_what_depends_on_the_example_of_a_size_is_undone(batch, ask):
    size, environments = batch
    (environment,) = environments
    before, name = (len(environment.guards), dict(environment.replacements)), str(size)
    assert not name.isdigit()
    for _ in range(2):  # torch remembers answers, but not that they were guesses
        assert for_all_sizes(environments, lambda: "one way" if ask(size) else "another") is None
    assert (len(environment.guards), environment.replacements) == before
    assert environment.var_to_range[size.node.expr].upper == 16
    assert str(size) == name


def test_what_holds_for_all_sizes_is_returned(batch):
    size, environments = batch
    assert for_all_sizes(environments, lambda: "one way" if size <= 16 else "another") == "one way"
    assert for_all_sizes([], lambda: 3) == 3


def test_an_answer_is_undone_after_an_error_too(batch):
    size, environments = batch

    def ask():
        raise ValueError(bool(size == 2))

    with pytest.raises(ValueError, match="True"):
        for_all_sizes(environments, ask)
    assert not environments[0].guards
