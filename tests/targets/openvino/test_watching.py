"""Values inside an OpenVINO model, and which node of the graph each is."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import UsageError
from isomorph.targets.openvino.session import OpenVinoSession
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from isomorph.tests.targets.watching import case, demand_watching, small_graph, wrong_values
from torch import nn


def other_gelu(path: Path) -> str:
    tree = ElementTree.parse(path)
    (layer,) = [item for item in tree.getroot().iter("layer") if item.get("type") == "Gelu"]
    data = layer.find("data")
    assert data is not None
    assert data.get("approximation_mode") == "ERF"
    data.set("approximation_mode", "TANH")
    tree.write(path)
    return "gelu"


def other_epsilon(path: Path) -> str:
    tree = ElementTree.parse(path)
    (layer,) = [item for item in tree.getroot().iter("layer") if item.get("type") == "MVN"]
    data = layer.find("data")
    assert data is not None
    data.set("eps", "0.01")
    tree.write(path)
    return "layer_norm"


@pytest.mark.parametrize("edit", [other_gelu, other_epsilon])
def test_values_are_nodes_and_a_fault_shows_where_it_is(tmp_path: Path, edit) -> None:
    demand_watching(OpenVinoTarget(), OpenVinoOptions(), tmp_path, 6, edit)


def test_replay_demands_what_the_values_depend_on(tmp_path: Path) -> None:
    path = OpenVinoTarget().convert(small_graph(), OpenVinoOptions(), tmp_path, "net").path
    with OpenVinoSession(path) as session:
        first, *_, last = session.values()
        with pytest.raises(UsageError, match="depends on more"):
            session.replay({}, [last.name])
        given = {last.name: np.ones((1, 4, 8, 6), np.float32)}
        assert session.replay(given, [last.name])[last.name].sum() == 4 * 8 * 6
        with pytest.raises(UsageError, match="computes no nothing"):
            session.replay(case(), ["nothing"])
        assert first.inputs == ("x",)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_one_value_each(tmp_path: Path, layer) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(4, 3, 1, batch_first=True, bidirectional=True)

        def forward(self, x):
            return self.layer(torch.tanh(x))[0].relu()

    torch.manual_seed(0)
    graph = isomorph.trace(Net().eval(), args=(torch.randn(2, 5, 4),), dynamic={"x.1": "time:2..9"})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "net").path
    trail = OpenVinoTarget().trail(graph, OpenVinoOptions(), path, scratch)
    found = {node for node in trail.values.values() if "direction" in node}
    assert len(found) == 2, trail.values
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 7, 4)).astype(np.float32)}
    with OpenVinoSession(path) as session:
        assert wrong_values(session, trail, inputs) == []
