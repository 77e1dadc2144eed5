"""Broken layers of the network of a TensorRT for RTX engine are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import pytest
from isomorph.hashing import sha256_of
from isomorph.targets.tensorrt.recipe import Recipe
from isomorph.tests.targets.localizing import Exported, Fault, demand_named
from onnx import ModelProto, numpy_helper

pytest.importorskip("tensorrt_rtx")


def network(path: Path, edit: Callable[[ModelProto], None]) -> None:
    """Change the network beside an engine, as if the converter had written it so."""
    stem = path.name.removesuffix(".engine")
    file, recipe = path.with_name(f"{stem}.onnx"), path.with_name(f"{stem}.json")
    model = onnx.load(str(file))
    edit(model)
    onnx.save(model, str(file))
    found = Recipe.read(recipe)
    replace(found, files={**found.files, file.name: sha256_of(file)}).write(recipe)


def edit_norm(model: ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(entry for entry in node.attribute if entry.name == "epsilon").f = 0.05


def edit_gelu(model: ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Gelu")
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("approximate", "tanh"))


def edit_bias(model: ModelProto) -> None:
    (tensor,) = [t for t in model.graph.initializer if t.name == "blocks.1.out.bias"]
    values = numpy_helper.to_array(tensor).copy()
    values[3] += 0.05
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


FAULTS = {
    edit_norm: ("ConvNet", ("layer_norm",), "norm", "self.norm(y)"),
    edit_gelu: ("ConvNet", ("gelu",), "act", "self.act(y)"),
    edit_bias: ("Attention", ("linear",), "blocks.1.out", "self.out(y)"),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("tensorrt-rtx", tmp_path_factory.mktemp("rtx"), {"sm": "86"})


@pytest.mark.parametrize("edit", FAULTS, ids=lambda edit: edit.__name__)
def test_the_broken_layer_is_named(invoke, exported, edit, tmp_path) -> None:
    model, operators, module, source = FAULTS[edit]
    fault = Fault(model, partial(network, edit=edit), operators, module, source)
    demand_named(invoke, exported, fault, tmp_path)
