"""Faults put into the written bytes are caught by `isomorph validate`; untouched files pass.

The edits use zipfile alone: the program is text in the archive, each weight a member.
"""

from __future__ import annotations

import re
import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

INPUTS = {"SmallTransformer": "x=2x10x16", "SmallConvNet": "x=2x3x24x24"}
CODE = "model/code/__torch__.py"
Members = dict[str, bytes]


@pytest.fixture(scope="module", params=sorted(INPUTS))
def exported(request, tmp_path_factory, invoke, nets) -> tuple[str, Path, Path]:
    """A net's name, its checkpoint and its artifact with a dynamic batch."""
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = folder / "net.pt"
    module = small_nets["awake"](small_nets[request.param]())
    torch.save(module.state_dict(), checkpoint)
    done = invoke("export", checkpoint, "-f", "torchscript", "-q", *source(nets, request.param))
    assert done.code == 0, done.stderr
    return request.param, checkpoint, folder / "net.ts"


def source(nets: Path, net: str) -> tuple[str, ...]:
    return ("--model", f"{nets}:{net}", "-i", INPUTS[net], "--dynamic", "x.0=batch:1..9")


def read(artifact: Path) -> Members:
    with zipfile.ZipFile(artifact) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(members: Members, artifact: Path) -> None:
    with zipfile.ZipFile(artifact, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_an_untouched_artifact_passes(exported, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    copy = tmp_path / "net.ts"
    write(read(artifact), copy)
    done = invoke("validate", copy, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 0, done.stdout + done.stderr


def change_code(members: Members, pattern: str, new: Callable[[re.Match[str]], str]) -> bool:
    text = members[CODE].decode()
    changed, count = re.subn(pattern, new, text, count=1)
    members[CODE] = changed.encode()
    return count == 1


def triple_epsilon(members: Members) -> bool:
    norm = r"(torch\.(?:layer|batch)_norm\(.*, )(1\.0\d*e-05)"
    return change_code(members, norm, lambda m: f"{m[1]}{3 * float(m[2])!r}")


def tanh_for_erf(members: Members) -> bool:
    gelu = r"torch\.gelu\(([\w().,\[\] ]*?)\)(?=[,\n])"
    return change_code(members, gelu, lambda m: f'torch.gelu({m[1]}, approximate="tanh")')


def square_weights(members: Members) -> list[str]:
    """Members that hold a square float32 matrix."""
    sizes = {name: len(content) / 4 for name, content in members.items() if "/data/" in name}
    squares = {16 * 16, 8 * 8}
    return sorted(name for name, size in sizes.items() if size in squares)


def half_weight(members: Members) -> bool:
    name = square_weights(members)[0]
    halved = np.frombuffer(members[name], np.float32).astype(np.float16)
    members[name] = halved.astype(np.float32).tobytes()
    return True


def transpose_weight(members: Members) -> bool:
    name = square_weights(members)[0]
    matrix = np.frombuffer(members[name], np.float32)
    side = int(len(matrix) ** 0.5)
    members[name] = matrix.reshape(side, side).T.tobytes()
    return True


def flip_padding(members: Members) -> bool:
    return change_code(members, '"reflect"', lambda m: '"replicate"')


FAULTS: dict[str, Callable[[Members], bool]] = {
    f.__name__: f
    for f in (triple_epsilon, tanh_for_erf, half_weight, transpose_weight, flip_padding)
}
# Transformers do not pad.
ABSENT = {("SmallTransformer", "flip_padding")}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_bytes_is_caught(exported, fault, tmp_path, invoke, nets):
    net, checkpoint, artifact = exported
    members = read(artifact)
    if not FAULTS[fault](members):
        assert (net, fault) in ABSENT
        pytest.skip(f"{net} has no place for {fault}")
    broken = tmp_path / "net.ts"
    write(members, broken)
    done = invoke("validate", broken, "--against", checkpoint, "-q", *source(nets, net))
    assert done.code == 3, done.stdout + done.stderr
