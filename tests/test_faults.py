"""Faults put into the written bytes are caught by `isomorph validate`; untouched files pass.

The edits use the onnx library alone: nothing here knows how validation works.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

INPUTS = {"SmallTransformer": "x=2x10x16", "SmallConvNet": "x=2x3x24x24"}


@pytest.fixture(scope="module", params=sorted(INPUTS))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its artifact with a dynamic batch."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    module = small_nets["awake"](small_nets[request.param]())
    torch.save(module.state_dict(), checkpoint)
    done = invoke("export", checkpoint, "-q", *source(nets, request.param))
    assert done.code == 0, done.stderr
    return request.param, checkpoint, folder / "net.onnx"


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", INPUTS[net], "--dynamic", "x.0=batch:1..9")


def test_an_untouched_artifact_passes(exported, invoke, nets):
    net, checkpoint, artifact = exported
    done = invoke("validate", artifact, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


def nodes(model: onnx.ModelProto, kind: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == kind]


def triple_epsilon(model: onnx.ModelProto) -> bool:
    for node in (*nodes(model, "LayerNormalization"), *nodes(model, "BatchNormalization")):
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f *= 3
                return True
    return False


def tanh_for_erf(model: onnx.ModelProto) -> bool:
    for node in nodes(model, "Gelu"):
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("approximate", "tanh"))
        return True
    for node in nodes(model, "Erf"):  # erf(z) -> tanh(sqrt(2/pi) (x + 0.044715 x^3)), x = z sqrt 2
        z, out = node.input[0], node.output[0]
        at = list(model.graph.node).index(node)
        numbers = {"r2": math.sqrt(2), "c": 0.044715, "s": math.sqrt(2 / math.pi)}
        for name, value in numbers.items():
            model.graph.initializer.append(
                numpy_helper.from_array(np.float32(value), f"fault_{name}")
            )
        new = [
            helper.make_node("Mul", [z, "fault_r2"], ["fault_x"]),
            helper.make_node("Mul", ["fault_x", "fault_x"], ["fault_x2"]),
            helper.make_node("Mul", ["fault_x2", "fault_x"], ["fault_x3"]),
            helper.make_node("Mul", ["fault_x3", "fault_c"], ["fault_cx3"]),
            helper.make_node("Add", ["fault_x", "fault_cx3"], ["fault_sum"]),
            helper.make_node("Mul", ["fault_sum", "fault_s"], ["fault_arg"]),
            helper.make_node("Tanh", ["fault_arg"], [out]),
        ]
        model.graph.node.remove(node)
        for offset, made in enumerate(new):
            model.graph.node.insert(at + offset, made)
        return True
    return False


def matrices(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    return [t for t in model.graph.initializer if len(t.dims) >= 2 and t.data_type == 1]


def half_weight(model: onnx.ModelProto) -> bool:
    tensor = matrices(model)[0]
    name = tensor.name
    halved = numpy_helper.to_array(tensor).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(halved, f"{name}_fp16"))
    cast = helper.make_node("Cast", [f"{name}_fp16"], [name], to=onnx.TensorProto.FLOAT)
    model.graph.node.insert(0, cast)
    return True


def transpose_weight(model: onnx.ModelProto) -> bool:
    for tensor in matrices(model):
        if len(tensor.dims) == 2 and tensor.dims[0] == tensor.dims[1]:
            turned = np.ascontiguousarray(numpy_helper.to_array(tensor).T)
            tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
            return True
    return False


def flip_padding(model: onnx.ModelProto) -> bool:
    for node in nodes(model, "Pad"):
        for attribute in node.attribute:
            if attribute.name == "mode" and attribute.s == b"reflect":
                attribute.s = b"edge"
                return True
    return False


FAULTS: dict[str, Callable[[onnx.ModelProto], bool]] = {
    f.__name__: f
    for f in (triple_epsilon, tanh_for_erf, half_weight, transpose_weight, flip_padding)
}
# Conv nets have their BatchNorm folded or keep it; transformers do not pad.
ABSENT = {("SmallTransformer", "flip_padding"), ("SmallConvNet", "triple_epsilon")}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    model = onnx.load(artifact)
    if not FAULTS[fault](model):
        assert (net, fault) in ABSENT
        pytest.skip(f"{net} has no place for {fault}")
    broken = tmp_path / "net.onnx"
    onnx.save(model, broken)
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
