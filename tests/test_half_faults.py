"""Faults put into an fp16 artifact's bytes are caught by `isomorph validate`, as in fp32 ones.

What is below half's own noise is not: three times a norm's epsilon, another GELU in one
place (docs/precision.md has the figures).
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

INPUTS = {"SmallTransformer": "x=2x10x16", "SmallConvNet": "x=2x3x24x24"}


@pytest.fixture(scope="module", params=sorted(INPUTS))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its fp16 artifact."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    torch.save(small_nets["awake"](small_nets[request.param]()).state_dict(), checkpoint)
    done = invoke("export", checkpoint, "-q", "--precision", "fp16", *source(nets, request.param))
    assert done.code == 0, done.stderr
    return request.param, checkpoint, folder / "net.onnx"


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", INPUTS[net])


def halves(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    kind = onnx.TensorProto.FLOAT16
    return [t for t in model.graph.initializer if len(t.dims) >= 2 and t.data_type == kind]


def transpose_weight(model: onnx.ModelProto) -> bool:
    for tensor in halves(model):
        if len(tensor.dims) == 2 and tensor.dims[0] == tensor.dims[1]:
            turned = np.ascontiguousarray(numpy_helper.to_array(tensor).T)
            tensor.CopyFrom(numpy_helper.from_array(turned, tensor.name))
            return True
    return False


def round_weights_to_eight_bits(model: onnx.ModelProto) -> bool:
    for tensor in halves(model):
        values = numpy_helper.to_array(tensor).astype(np.float32)
        scale = np.abs(values).max() / 127
        rounded = (np.round(values / scale) * scale).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    return True


def flip_padding(model: onnx.ModelProto) -> bool:
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Pad" else ():
            if attribute.name == "mode" and attribute.s == b"reflect":
                attribute.s = b"edge"
                return True
    return False


FAULTS = {f.__name__: f for f in (transpose_weight, round_weights_to_eight_bits, flip_padding)}


def test_an_untouched_artifact_passes(exported, invoke, nets):
    net, checkpoint, artifact = exported
    done = invoke("validate", artifact, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    model = onnx.load(artifact)
    if not FAULTS[fault](model):
        assert (net, fault) == ("SmallTransformer", "flip_padding")
        pytest.skip(f"{net} has no place for {fault}")
    broken = tmp_path / "net.onnx"
    onnx.save(model, broken)
    manifest = artifact.with_name("net.onnx.manifest.json")
    (tmp_path / manifest.name).write_bytes(manifest.read_bytes())
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
