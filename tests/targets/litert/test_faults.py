"""Faults put into the written bytes are caught by `isomorph validate`; untouched files pass.

Constants are edited in place. Epsilon is a constant of an ADD, GELU and MIRROR_PAD are options
of their operators, which the schema that LiteRT ships rewrites. Nothing here knows how
validation works.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("litert_torch", reason="needs isomorph[litert]")
flatbuffers = pytest.importorskip("flatbuffers")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated")

INPUTS = {"SmallTransformer": "x=2x10x16", "SmallConvNet": "x=2x3x24x24"}


@pytest.fixture(scope="module", params=sorted(INPUTS))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its artifact."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    module = small_nets["awake"](small_nets[request.param]())
    torch.save(module.state_dict(), checkpoint)
    done = invoke("export", checkpoint, "-f", "litert", "-q", *source(nets, request.param))
    assert done.code == 0, done.stderr
    return request.param, checkpoint, folder / "net.tflite"


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", INPUTS[net])


def test_an_untouched_artifact_passes(exported, invoke, nets):
    net, checkpoint, artifact = exported
    done = invoke("validate", artifact, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


def test_writing_a_file_again_changes_nothing(exported, invoke, nets, tmp_path):
    net, checkpoint, artifact = exported
    again = tmp_path / "net.tflite"
    again.write_bytes(packed(schema.ModelT.InitFromPackedBuf(artifact.read_bytes(), 0)))
    done = invoke("validate", again, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def operators(model: Any, *kinds: str) -> Iterator[Any]:
    codes = {getattr(schema.BuiltinOperator, kind) for kind in kinds}
    for operator in model.subgraphs[0].operators:
        if model.operatorCodes[operator.opcodeIndex].builtinCode in codes:
            yield operator


def constant(model: Any, index: int) -> np.ndarray | None:
    """A tensor's float32 values, writable, in its shape; None if it holds none."""
    tensor = model.subgraphs[0].tensors[index]
    buffer = model.buffers[tensor.buffer]
    if tensor.type != schema.TensorType.FLOAT32 or buffer.data is None:
        return None
    buffer.data = np.array(buffer.data, dtype=np.uint8)
    shape = () if tensor.shape is None else tuple(tensor.shape)
    return buffer.data.view("<f4").reshape(shape)


def triple_epsilon(model: Any) -> bool:
    for operator in operators(model, "ADD"):
        for index in operator.inputs:
            values = constant(model, index)
            if values is not None and values.size == 1 and 0 < values.ravel()[0] < 1e-4:
                values *= 3
                return True
    return False


def tanh_for_erf(model: Any) -> bool:
    for operator in operators(model, "GELU"):
        operator.builtinOptions.approximate = True
        return True
    return False


def weights(model: Any) -> Iterator[np.ndarray]:
    for operator in operators(model, "CONV_2D", "FULLY_CONNECTED"):
        values = constant(model, operator.inputs[1])
        if values is not None:
            yield values


def half_weight(model: Any) -> bool:
    values = next(weights(model))
    values[...] = values.astype(np.float16)
    return True


def transpose_weight(model: Any) -> bool:
    for values in weights(model):
        if values.ndim == 2 and values.shape[0] == values.shape[1]:
            values[...] = values.T.copy()
            return True
    return False


def clamp_padding(model: Any) -> bool:
    """There is no edge mode in MIRROR_PAD: SYMMETRIC repeats the border, as edge does."""
    for operator in operators(model, "MIRROR_PAD"):
        assert operator.builtinOptions.mode == schema.MirrorPadMode.REFLECT
        operator.builtinOptions.mode = schema.MirrorPadMode.SYMMETRIC
        return True
    return False


FAULTS: dict[str, Callable[[Any], bool]] = {
    f.__name__: f
    for f in (triple_epsilon, tanh_for_erf, half_weight, transpose_weight, clamp_padding)
}
# The converter folds the conv net's BatchNorm into its weights; transformers do not pad.
ABSENT = {("SmallTransformer", "clamp_padding"), ("SmallConvNet", "triple_epsilon")}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    model = schema.ModelT.InitFromPackedBuf(artifact.read_bytes(), 0)
    if not FAULTS[fault](model):
        assert (net, fault) in ABSENT
        pytest.skip(f"{net} has no place for {fault}")
    broken = tmp_path / "net.tflite"
    broken.write_bytes(packed(model))
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
