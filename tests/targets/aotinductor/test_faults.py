"""Faults in a package are caught by `isomorph validate`; an untouched one passes.

Weights are changed in the written bytes, where they lie in a member of their own. Another
epsilon, activation or padding is other machine code, so a copy of the graph that has the
fault is compiled.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.targets.aotinductor.target import AotInductorOptions, AotInductorTarget

Members = dict[str, bytes]
WEIGHTS = "model/data/aotinductor/model/model.wrapper_weights.blob"


def read(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(members: Members, path: Path) -> None:
    """torch reads members from where they lie, at multiples of 64 bytes."""
    writer: Any = torch._C.PyTorchFileWriter(str(path.with_name("model.pt2")))
    writer.set_min_version(6)  # as torch's own writer of packages does
    for name, content in members.items():
        inner = name.partition("/")[2]
        if inner not in ("byteorder", ".data/version", ".data/serialization_id"):
            writer.write_record(inner, content, len(content))
    writer.write_end_of_file()
    path.with_name("model.pt2").rename(path)


def test_an_untouched_package_passes(package, tmp_path, invoke):
    copy = tmp_path / "net.aoti.pt2"
    write(read(package.path), copy)
    done = invoke("validate", copy, "--trust", "--against", package.checkpoint, *package.arguments)
    assert done.code == 0, done.stdout + done.stderr


def change_weight(members: Members, weight: torch.Tensor, changed: np.ndarray) -> None:
    content = weight.detach().numpy().tobytes()
    assert members[WEIGHTS].count(content) == 1
    members[WEIGHTS] = members[WEIGHTS].replace(content, changed.tobytes())


@pytest.mark.parametrize("fault", ["half_weight", "transpose_weight"])
def test_a_fault_in_the_bytes_is_caught(package, fault, tmp_path, invoke):
    members = read(package.path)
    weight = package.module.hidden.weight
    matrix = weight.detach().numpy()
    if fault == "half_weight":
        change_weight(members, weight, matrix.astype(np.float16).astype(np.float32))
    else:
        change_weight(members, weight, np.ascontiguousarray(matrix.T))
    broken = tmp_path / "net.aoti.pt2"
    write(members, broken)
    done = invoke(
        "validate", broken, "--trust", "--against", package.checkpoint, *package.arguments
    )
    assert done.code == 3, done.stdout + done.stderr


def triple_epsilon(node: Any) -> bool:
    if node.target is not torch.ops.aten.batch_norm.default:
        return False
    node.args = tuple(3 * item if item == 1e-5 else item for item in node.args)
    return True


def tanh_for_erf(node: Any) -> bool:
    if node.target is not torch.ops.aten.gelu.default:
        return False
    node.kwargs = {"approximate": "tanh"}
    return True


def flip_padding(node: Any) -> bool:
    if "reflect" not in node.args:
        return False
    node.args = tuple("replicate" if item == "reflect" else item for item in node.args)
    return True


@pytest.mark.parametrize("fault", [triple_epsilon, tanh_for_erf, flip_padding])
def test_a_fault_in_the_program_is_caught(package, fault: Callable[[Any], bool], tmp_path, invoke):
    graph = package.graph()
    program = graph.copy_program()
    assert sum(fault(node) for node in program.graph.nodes) >= 1
    program.graph_module.recompile()
    faulty = replace(graph, program=program)
    broken = AotInductorTarget().convert(faulty, AotInductorOptions(), tmp_path, "net").path
    done = invoke(
        "validate", broken, "--trust", "--against", package.checkpoint, *package.arguments
    )
    assert done.code == 3, done.stdout + done.stderr
