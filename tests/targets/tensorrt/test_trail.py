"""Values inside the network of an engine, and which node of the graph each is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import isomorph
import numpy as np
import onnx
import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.hashing import sha256_of
from isomorph.targets.tensorrt.options import RtxOptions
from isomorph.targets.tensorrt.recipe import Recipe
from isomorph.targets.tensorrt.rtx import TensorRtRtxTarget
from isomorph.tests.targets.watching import case, demand_watching, small_graph, wrong_values
from onnx import ModelProto
from torch import nn

pytest.importorskip("tensorrt_rtx")


def rewrite(path: Path, model: ModelProto) -> None:
    """Another network beside the engine, as if it had been converted so."""
    file = path.with_name("net.rtx.onnx")
    onnx.save(model, str(file))
    recipe = path.with_name("net.rtx.json")
    found = Recipe.read(recipe)
    replace(found, files={**found.files, file.name: sha256_of(file)}).write(recipe)


def other_epsilon(path: Path) -> str:
    model = onnx.load(str(path.with_name("net.rtx.onnx")))
    (node,) = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    (epsilon,) = [entry for entry in node.attribute if entry.name == "epsilon"]
    epsilon.f = 0.05
    rewrite(path, model)
    return "layer_norm"


def other_gelu(path: Path) -> str:
    model = onnx.load(str(path.with_name("net.rtx.onnx")))
    (node,) = [node for node in model.graph.node if node.op_type == "Gelu"]
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    rewrite(path, model)
    return "gelu"


@pytest.mark.parametrize("edit", [other_epsilon, other_gelu])
def test_values_are_nodes_and_a_fault_shows_where_it_is(tmp_path: Path, edit) -> None:
    demand_watching(TensorRtRtxTarget(), RtxOptions(sm="86"), tmp_path, 7, edit)


def test_replay_demands_what_the_values_depend_on(tmp_path: Path) -> None:
    path = TensorRtRtxTarget().convert(small_graph(), RtxOptions(sm="86"), tmp_path, "net").path
    with TensorRtRtxTarget().open(path) as session:
        first, *_, last = session.values()
        assert first.inputs == ("x",)
        assert first.node.startswith("node_")
        with pytest.raises(ConversionError, match="nothing makes its input"):
            session.replay({}, [last.name])
        with pytest.raises(UsageError, match="computes no nothing"):
            session.replay(case(), ["nothing"])
        assert session.replay(case(), [last.name])[last.name].shape == (1, 4, 8, 6)


def test_a_loop_is_one_value(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.tanh(x))[0].relu() * 2

    torch.manual_seed(0)
    graph = isomorph.trace(Net().eval(), args=(torch.randn(2, 5, 4),))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = TensorRtRtxTarget().convert(graph, RtxOptions(sm="86"), tmp_path, "net").path
    trail = TensorRtRtxTarget().trail(graph, RtxOptions(sm="86"), path, scratch)
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)}
    with TensorRtRtxTarget().open(path) as session:
        operators = {value.operator for value in session.values()}
        assert "LOOP_OUTPUT" in operators
        assert len(trail.values) >= 3, trail.values
        assert wrong_values(session, trail, inputs) == []
        loop = next(value for value in session.values() if value.operator == "LOOP_OUTPUT")
        assert session.replay(inputs, [loop.name])[loop.name].shape[0] == 5
