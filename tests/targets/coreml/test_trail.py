"""Values inside a Core ML package, and which node of the graph each is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError
from isomorph.targets.coreml.options import CoreMlOptions
from isomorph.targets.coreml.storage import read_spec, write_spec
from isomorph.targets.coreml.target import CoreMlTarget
from isomorph.tests.targets.watching import case, demand_watching, small_graph, wrong_values
from torch import nn


def _constant_of(spec: Any, kind: str, parameter: str) -> Any:
    """The constant that the one operation of `kind` reads as `parameter`."""
    function = spec.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    (operation,) = [o for o in block.operations if o.type == kind]
    name = operation.inputs[parameter].arguments[0].name
    (made,) = [o for o in block.operations if o.outputs[0].name == name]
    return made.attributes["val"].immediateValue.tensor


def other_epsilon(path: Path) -> str:
    spec = read_spec(path)
    _constant_of(spec, "layer_norm", "epsilon").floats.values[:] = [0.05]
    write_spec(spec, path)
    return "layer_norm"


def other_gelu(path: Path) -> str:
    spec = read_spec(path)
    held = _constant_of(spec, "gelu", "mode").strings.values
    assert list(held) == ["EXACT"]
    held[:] = ["TANH_APPROXIMATION"]
    write_spec(spec, path)
    return "gelu"


@pytest.mark.parametrize("edit", [other_epsilon, other_gelu])
def test_values_are_nodes_and_a_fault_shows_where_it_is(tmp_path: Path, edit) -> None:
    demand_watching(CoreMlTarget(), CoreMlOptions(), tmp_path, 6, edit)


def test_inputs_go_by_the_users_names(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.where(flag, x.exp(), x.sin()).cumsum(0)

    graph = isomorph.trace(Net().eval(), args=(torch.ones(3) > 0, torch.randn(3)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = CoreMlTarget().convert(graph, CoreMlOptions(), tmp_path, "net").path
    trail = CoreMlTarget().trail(graph, CoreMlOptions(), path, scratch)
    assert len(trail.values) >= 3
    inputs = {"flag": np.array([True, False, True]), "x": np.ones(3, np.float32)}
    with CoreMlTarget().open(path) as session:
        assert wrong_values(session, trail, inputs) == []
        first = next(value for value in session.values() if "x" in value.inputs)
        found = session.replay(inputs, [first.name])
        np.testing.assert_allclose(found[first.name], np.exp(inputs["x"]), rtol=1e-6)


def test_replay_demands_what_the_values_depend_on(tmp_path: Path) -> None:
    path = CoreMlTarget().convert(small_graph(), CoreMlOptions(), tmp_path, "net").path
    with CoreMlTarget().open(path) as session:
        *_, last = session.values()
        with pytest.raises(InputFileError, match="nothing computes"):
            session.replay({}, [last.name])
        assert session.replay(case(), [last.name])[last.name].shape == (1, 4, 8, 6)
