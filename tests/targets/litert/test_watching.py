"""Values inside a `.tflite` file, and which node of the graph each is."""

from __future__ import annotations

from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import UsageError
from isomorph.targets.litert.target import LiteRtOptions, LiteRtTarget
from isomorph.tests.targets.localizing import Exported, Fault, change_weight, demand_named
from isomorph.tests.targets.watching import case, demand_watching, small_graph, wrong_values
from torch import nn


def other_weight(path: Path) -> str:
    """One weight of the layer norm, which is several operators here, changed in the bytes."""
    weight = small_graph().program.state_dict["norm.weight"].detach().numpy()
    content = path.read_bytes()
    assert content.count(weight.tobytes()) == 1
    changed = weight.copy()
    changed[2] += 0.3
    path.write_bytes(content.replace(weight.tobytes(), changed.tobytes()))
    return "layer_norm"


def test_values_are_nodes_and_a_fault_shows_where_it_is(tmp_path: Path) -> None:
    demand_watching(LiteRtTarget(), LiteRtOptions(), tmp_path, 6, other_weight)


def test_watched_values_are_computed_by_xnnpack_as_in_the_file(tmp_path: Path) -> None:
    """Else another kernel would be looked at than the one that is deployed."""
    from ai_edge_litert.interpreter import Interpreter
    from isomorph.targets.litert.session import LiteRtSession
    from isomorph.targets.litert.watching import WatchedModel

    path = LiteRtTarget().convert(small_graph(), LiteRtOptions(), tmp_path, "net").path
    with LiteRtSession(path) as session:
        model = session._inside
        assert isinstance(model, WatchedModel)
        graph = model._graph
        wanted = [*session._indices[1].values(), *model._depending]
        part = model._part(graph.operators, graph.inputs, wanted)
        interpreter = Interpreter(model_content=part, num_threads=1)
        interpreter.allocate_tensors()
        plan = [entry["op_name"] for entry in interpreter._get_ops_details()]
        assert "DELEGATE" in plan


def test_replay_demands_what_the_values_depend_on(tmp_path: Path) -> None:
    path = LiteRtTarget().convert(small_graph(), LiteRtOptions(), tmp_path, "net").path
    with LiteRtTarget().open(path) as session:
        *_, last = session.values()
        with pytest.raises(UsageError, match="computed from more"):
            session.replay({}, [last.name])
        with pytest.raises(UsageError, match="computes no nothing"):
            session.replay(case(), ["nothing"])
        assert session.replay(case(), [last.name])[last.name].shape == (1, 4, 8, 6)


def test_inputs_go_by_the_users_names(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.where(flag, x.exp(), x.sin()).cumsum(0)

    graph = isomorph.trace(Net().eval(), args=(torch.ones(3) > 0, torch.randn(3)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = LiteRtTarget().convert(graph, LiteRtOptions(), tmp_path, "net").path
    trail = LiteRtTarget().trail(graph, LiteRtOptions(), path, scratch)
    assert len(trail.values) >= 3
    inputs = {"flag": np.array([True, False, True]), "x": np.ones(3, np.float32)}
    with LiteRtTarget().open(path) as session:
        assert wrong_values(session, trail, inputs) == []
        first = next(value for value in session.values() if "x" in value.inputs)
        found = session.replay(inputs, [first.name])
        assert found[first.name].shape == (3,)


def edit_linear(path: Path) -> None:
    change_weight(path, "ConvNet", "fc.weight")


def edit_norm(path: Path) -> None:
    change_weight(path, "ConvNet", "norm.weight")


def edit_attention(path: Path) -> None:
    change_weight(path, "Attention", "blocks.1.out.weight")


FAULTS = (
    Fault("ConvNet", edit_linear, ("linear",), "fc", "self.fc(y)"),
    Fault("ConvNet", edit_norm, ("layer_norm",), "norm", "self.norm(y)"),
    Fault("Attention", edit_attention, ("linear",), "blocks.1.out", "self.out(y)"),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("litert", tmp_path_factory.mktemp("litert"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.edit.__name__)
def test_the_broken_operator_is_named(invoke, exported, fault, tmp_path) -> None:
    demand_named(invoke, exported, fault, tmp_path)
