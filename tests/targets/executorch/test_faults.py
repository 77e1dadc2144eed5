"""Faults in a `.pte` file are caught by `isomorph validate`; the untouched file passes.

Weights are changed in the bytes of the written file. A file keeps epsilons, kinds of
GELU and of padding as folded constants or as the choice of a kernel, so those faults are put
into a copy of the graph, which is converted in the place of the right one.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget

MODELS = Path(__file__).parents[2] / "models"
program_faults = runpy.run_path(str(MODELS / "program_faults.py"))
SHAPES = {"SmallTransformer": "2x10x16", "SmallConvNet": "2x3x24x24"}


@pytest.fixture(scope="module", params=sorted(SHAPES))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its artifact with a dynamic batch."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    torch.save(small_nets["awake"](small_nets[request.param]()).state_dict(), checkpoint)
    more = source(nets, request.param)
    done = invoke("export", checkpoint, "-f", "executorch", "-q", *more)
    assert done.code == 0, done.stdout + done.stderr
    return request.param, checkpoint, folder / "net.pte"


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", f"x={SHAPES[net]}", "--dynamic", "x.0=batch:1..9")


def test_an_untouched_artifact_passes(exported, invoke, nets):
    net, checkpoint, artifact = exported
    done = invoke("validate", artifact, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


def half(weight: np.ndarray) -> np.ndarray:
    return weight.astype(np.float16).astype(np.float32)


def turned(weight: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weight.T)


@pytest.mark.parametrize("fault", [half, turned])
def test_a_fault_in_the_weights_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    content = artifact.read_bytes()
    for tensor in torch.load(checkpoint).values():
        weight = tensor.numpy()
        square = weight.ndim == 2 and weight.shape[0] == weight.shape[1]
        if square and content.count(weight.tobytes()) == 1:
            break
    else:
        pytest.fail("no square weight stands in the file as it is")
    broken = tmp_path / "net.pte"
    broken.write_bytes(content.replace(weight.tobytes(), fault(weight).tobytes()))
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr


ATTRIBUTES = [
    *(("SmallTransformer", fault) for fault in ("triple_epsilon", "tanh_for_erf")),
    *(("SmallConvNet", fault) for fault in ("triple_epsilon", "tanh_for_erf", "flip_padding")),
]


@pytest.mark.parametrize(("net", "fault"), ATTRIBUTES)
def test_a_fault_in_an_attribute_is_caught(net, fault, tmp_path, invoke, nets):
    from isomorph import trace

    small_nets = runpy.run_path(str(nets))
    module = small_nets["awake"](small_nets[net]()).eval()
    checkpoint = tmp_path / "net.pt"
    torch.save(module.state_dict(), checkpoint)
    shape = [int(size) for size in SHAPES[net].split("x")]
    graph = trace(module, args=(torch.randn(shape),), dynamic={"x.0": "batch:1..9"})
    wrong = program_faults["faulty"](graph, fault)
    broken = ExecuTorchTarget().convert(wrong, ExecuTorchOptions(), tmp_path, "net").path
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
