"""Broken operations of Core ML packages are named, with the fault in the spec and in a weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from isomorph.targets.coreml.storage import read_spec, write_spec
from isomorph.tests.targets.localizing import Exported, Fault, change_weight, demand_named


def edit_norm(path: Path) -> None:
    spec = read_spec(path)
    _constant(spec, "layer_norm", "epsilon").floats.values[:] = [0.05]
    write_spec(spec, path)


def edit_gelu(path: Path) -> None:
    spec = read_spec(path)
    _constant(spec, "gelu", "mode").strings.values[:] = ["TANH_APPROXIMATION"]
    write_spec(spec, path)


def edit_weight(path: Path) -> None:
    weights = path / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    change_weight(weights, "Attention", "blocks.1.out.weight")


def _constant(spec: Any, kind: str, parameter: str) -> Any:
    """The constant that the first operation of `kind` reads as `parameter`."""
    function = spec.mlProgram.functions["main"]
    operations = function.block_specializations[function.opset].operations
    first = next(o for o in operations if o.type == kind)
    name = first.inputs[parameter].arguments[0].name
    (made,) = [o for o in operations if o.outputs[0].name == name]
    return made.attributes["val"].immediateValue.tensor


FAULTS = (
    Fault("ConvNet", edit_norm, ("layer_norm",), "norm", "self.norm(y)"),
    Fault("ConvNet", edit_gelu, ("gelu",), "act", "self.act(y)"),
    Fault("Attention", edit_weight, ("linear",), "blocks.1.out", "self.out(y)"),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("coreml", tmp_path_factory.mktemp("coreml"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.edit.__name__)
def test_the_broken_operation_is_named(invoke, exported, fault, tmp_path) -> None:
    demand_named(invoke, exported, fault, tmp_path)
