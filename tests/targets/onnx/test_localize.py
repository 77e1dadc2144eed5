"""Broken operators of ONNX files are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from isomorph.tests.targets.localizing import Exported, Fault, demand_named
from onnx import ModelProto, NodeProto, numpy_helper


def edit_norm(path: Path) -> None:
    model = onnx.load(str(path))
    _attribute(_node(model, "LayerNormalization"), "epsilon").f = 0.05
    onnx.save(model, str(path))


def edit_gelu(path: Path) -> None:
    model = onnx.load(str(path))
    node = _node(model, "Gelu")
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    onnx.save(model, str(path))


def edit_bias(path: Path) -> None:
    model = onnx.load(str(path))
    (tensor,) = [t for t in model.graph.initializer if t.name == "blocks.1.out.bias"]
    values = numpy_helper.to_array(tensor).copy()
    values[3] += 0.05
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, str(path))


def edit_softmax(path: Path) -> None:
    model = onnx.load(str(path))
    _attribute(_node(model, "Softmax"), "axis").i = 1
    onnx.save(model, str(path))


def _node(model: ModelProto, kind: str) -> NodeProto:
    return next(node for node in model.graph.node if node.op_type == kind)


def _attribute(node: NodeProto, name: str) -> Any:
    return next(entry for entry in node.attribute if entry.name == name)


FAULTS = (
    Fault("ConvNet", edit_norm, ("layer_norm",), "norm", "self.norm(y)"),
    Fault("ConvNet", edit_gelu, ("gelu",), "act", "self.act(y)"),
    Fault("Attention", edit_bias, ("linear",), "blocks.1.out", "self.out(y)"),
    Fault("Attention", edit_softmax, ("attention",), "blocks.0", "scaled_dot_product"),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("onnx", tmp_path_factory.mktemp("onnx"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.edit.__name__)
def test_the_broken_operator_is_named(invoke, exported, fault, tmp_path) -> None:
    demand_named(invoke, exported, fault, tmp_path)
