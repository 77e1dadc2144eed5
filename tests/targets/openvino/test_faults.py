"""Faults put into the written .xml and .bin are caught by `isomorph validate`.

The edits use the standard library and numpy: nothing here knows how validation works.
"""

from __future__ import annotations

import copy
import math
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
import torch

INPUTS = {"SmallTransformer": "x=2x10x16", "SmallConvNet": "x=2x3x24x24"}


class Files:
    """An IR in memory: the layers of the .xml and the bytes of the .bin."""

    def __init__(self, xml: Path) -> None:
        self.path, self.tree = xml, ElementTree.parse(xml)
        self.net = self.tree.getroot()
        self.bytes = bytearray(xml.with_suffix(".bin").read_bytes())

    def layers(self, kind: str) -> list[Element]:
        return [layer for layer in self.net.iter("layer") if layer.get("type") == kind]

    def constants(self) -> list[tuple[Element, tuple[int, ...], np.ndarray]]:
        """float32 constants: their layer, shape, and a view that writes through."""
        found = []
        for layer in self.layers("Const"):
            data = layer.find("data")
            if data.get("element_type") == "f32":
                shape = tuple(int(n) for n in data.get("shape").split(",") if n)
                start, size = int(data.get("offset")), int(data.get("size"))
                view = np.frombuffer(self.bytes, np.float32, size // 4, start)
                found.append((layer, shape, view))
        return found

    def save(self) -> None:
        self.tree.write(self.path)
        self.path.with_suffix(".bin").write_bytes(self.bytes)


def triple_epsilon(files: Files) -> bool:
    for layer in files.layers("MVN"):
        data = layer.find("data")
        data.set("eps", repr(float(data.get("eps")) * 3))
        return True
    for _, shape, values in files.constants():
        if math.prod(shape) == 1 and abs(values[0] - 1e-5) < 1e-7:
            values *= 3
            return True
    return False


def tanh_for_erf(files: Files) -> bool:
    for layer in files.layers("Gelu"):
        layer.find("data").set("approximation_mode", "TANH")
        return True
    return False


def half_weight(files: Files) -> bool:
    for _, shape, values in files.constants():
        if len(shape) >= 2 and math.prod(shape) > 16:
            values[:] = values.astype(np.float16)
            return True
    return False


def transpose_weight(files: Files) -> bool:
    for _, shape, values in files.constants():
        if len(shape) == 2 and shape[0] == shape[1]:
            values[:] = values.reshape(shape).T.copy().ravel()
            return True
    return False


def flip_padding(files: Files) -> bool:
    for layer in files.layers("Pad"):
        if layer.find("data").get("pad_mode") == "reflect":
            layer.find("data").set("pad_mode", "edge")
            return True
    return False


FAULTS: dict[str, Callable[[Files], bool]] = {
    f.__name__: f
    for f in (triple_epsilon, tanh_for_erf, half_weight, transpose_weight, flip_padding)
}
# The conv net's BatchNorm is folded into its convolution; transformers do not pad.
ABSENT = {("SmallTransformer", "flip_padding"), ("SmallConvNet", "triple_epsilon")}


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", INPUTS[net], "--dynamic", "x.0=batch:1..9")


@pytest.fixture(scope="module", params=sorted(INPUTS))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its artifact with a dynamic batch."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    module = small_nets["awake"](small_nets[request.param]())
    torch.save(module.state_dict(), checkpoint)
    done = invoke("export", checkpoint, "-f", "openvino", "-q", *source(nets, request.param))
    assert done.code == 0, done.stderr
    return request.param, checkpoint, folder / "net.xml"


def test_an_untouched_artifact_passes(exported, invoke, nets):
    net, checkpoint, artifact = exported
    done = invoke("validate", artifact, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    for name in ("net.xml", "net.bin"):
        shutil.copy(artifact.with_name(name), tmp_path)
    files = Files(tmp_path / "net.xml")
    before = copy.deepcopy(files.bytes), ElementTree.tostring(files.net)
    if not FAULTS[fault](files):
        assert (net, fault) in ABSENT
        pytest.skip(f"{net} has no place for {fault}")
    assert before != (files.bytes, ElementTree.tostring(files.net))
    files.save()
    done = invoke("validate", files.path, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
