"""What every target that shows its values must do, on one small net."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import torch
from isomorph.exporter.graph import Graph
from isomorph.targets.watching import Trail, Watching
from isomorph.validation.interpreter import TRUTH, Lane, Lockstep
from torch import Tensor, nn


class Net(nn.Module):
    """A convolution with batch norm, layer norm and GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 5)
        self.last = nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.conv(x)))
        x = nn.functional.gelu(self.linear(self.norm(x)))
        return self.last(x).softmax(-1)


def small_graph() -> Graph:
    """The net with weights that make every operator count."""
    torch.manual_seed(0)
    net = Net().eval()
    with torch.no_grad():
        for tensor in (net.bn.running_var, net.bn.weight, net.norm.weight):
            tensor.uniform_(0.5, 2)
        for tensor in (net.bn.running_mean, net.bn.bias, net.norm.bias):
            tensor.normal_()
    return isomorph.trace(net, args=(torch.randn(1, 3, 8, 8),))


def case() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)}


def truth_of(trail: Trail, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value of the trail's graph in float64, by node name."""
    kept: dict[str, np.ndarray] = {}

    def observe(node: Any, values: Any) -> None:
        if isinstance(values[0], Tensor):
            kept[node.name] = values[0].clone().numpy()

    lane = Lane("case", TRUTH, {k: torch.from_numpy(v) for k, v in inputs.items()})
    (outputs,) = Lockstep(trail.graph).run([lane], observe)
    assert isinstance(outputs, dict), outputs
    return kept


def wrong_values(
    session: Watching, trail: Trail, inputs: dict[str, np.ndarray], watch: bool = True
) -> list[str]:
    """Values that are not their nodes', in the order in which they are computed."""
    names = [v.name for v in session.values() if v.name in trail.values]
    found = session.run_watching(inputs, names)
    right = truth_of(trail, inputs)
    return [n for n in names if not _close(found[n], right[trail.values[n]])]


def wrong_alone(session: Watching, trail: Trail, inputs: dict[str, np.ndarray]) -> list[str]:
    """Values that are wrong where they are computed alone, from the nearest known right ones."""
    right = truth_of(trail, inputs)
    known = {name: right[node].astype(np.float32) for name, node in trail.values.items()} | inputs
    values = {value.name: value for value in session.values()}
    wrong = []
    for name in values:
        if name not in trail.values:
            continue
        given, pending = {}, list(values[name].inputs)
        while pending:
            source = pending.pop()
            if source in known:
                given[source] = known[source]
            else:
                pending += values[source].inputs
        found = session.replay(given, [name])
        assert list(found) == [name]
        if not _close(found[name], right[trail.values[name]]):
            wrong.append(name)
    return wrong


def _close(found: np.ndarray, right: np.ndarray) -> bool:
    assert found.shape == right.shape
    return bool(np.abs(found - right).max() <= 1e-4 * np.sqrt((right**2).mean()))


def demand_watching(
    target: Any, options: Any, folder: Path, least: int, edit: Callable[[Path], str]
) -> None:
    """`edit` changes an artifact and returns the torch operator that is then wrong."""
    graph = small_graph()
    scratch = folder / "scratch"
    scratch.mkdir()
    artifact = target.convert(graph, options, folder, "net").path
    trail = target.trail(graph, options, artifact, scratch)
    nodes = {node.name: node for node in trail.graph.program.graph.nodes}
    assert set(trail.values.values()) <= set(nodes)
    assert len(set(trail.values.values())) >= least, trail.values
    inputs = case()
    with target.open(artifact) as session:
        assert isinstance(session, Watching)
        assert set(trail.values) <= {value.name for value in session.values()}
        plain = session.run(inputs)
        watched = session.run_watching(inputs, list(trail.values))
        assert set(watched) == {*trail.values, *plain}
        for name, value in plain.items():
            np.testing.assert_allclose(watched[name], value, rtol=1e-4, atol=1e-6)
        assert wrong_values(session, trail, inputs) == []
        assert wrong_alone(session, trail, inputs) == []
    for stage in trail.stages:
        with stage.open() as session:
            assert wrong_values(session, trail, inputs) == [], stage.name
    operator = edit(artifact)
    with target.open(artifact) as session:
        wrong = wrong_values(session, trail, inputs)
        alone = wrong_alone(session, trail, inputs)
        order = [v.name for v in session.values() if v.name in trail.values]
    assert len(alone) == 1, alone
    assert operator in _operators(nodes[trail.values[alone[0]]])
    assert wrong == order[order.index(alone[0]) :]
    assert 0 < len(wrong) < len(order)


def _operators(node: Any) -> str:
    """The node's operator; a getitem is what it takes from."""
    return f"{node.target} " + " ".join(str(used.target) for used in node.all_input_nodes)
