"""The LiteRT target as a whole: border, refusals, reproducible files, capability."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError
from isomorph.targets.litert import target as module
from isomorph.targets.litert.schema import signature_names
from isomorph.targets.litert.target import LiteRtOptions, LiteRtTarget
from torch import Tensor, nn


class Block(nn.Module):
    """Convolution, attention and a linear layer: the usual parts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.layer(tokens).mean(1))
        return logits


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


def test_an_ordinary_network_computes_the_same(block, write) -> None:
    write(block, X).assert_computes()


class Border(nn.Module):
    def forward(self, x: Tensor, count: Tensor, keep: Tensor, scale: Tensor) -> Any:
        y = x * scale
        return {"z": y, "same": y, "count": count, "more": count + 1, "any": keep, "sum": y.sum()}


def test_names_order_and_dtypes_at_the_border_are_the_models(write) -> None:
    args = (torch.rand(2, 3), torch.tensor([2**40, -7]), torch.tensor([True]), torch.tensor(2.5))
    written = write(Border(), *args)

    names = signature_names(written.path)
    assert [name for name, _ in names[0]] == ["x", "count", "keep", "scale"]
    assert [name for name, _ in names[1]] == [spec.name for spec in written.graph.outputs]
    found = list(written.run().values())
    np.testing.assert_array_equal(found[0], (args[0] * 2.5).numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], args[1].numpy())
    np.testing.assert_array_equal(found[3], (args[1] + 1).numpy())
    assert [value.dtype.name for value in found] == [
        *("float32", "float32", "int64", "int64", "bool", "float32")
    ]
    assert found[5].shape == ()


def test_what_forward_writes_to_an_input_is_an_output(write) -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            return x + 1

    written = write(Writes(), torch.tensor([1.0, 2.0]))

    assert [spec.mutates for spec in written.graph.outputs] == [None, "x"]
    found = written.run()
    np.testing.assert_array_equal(found["x_mutated"], [2.0, 4.0])


def test_a_dynamic_axis_is_refused_naming_the_choices(block) -> None:
    graph = isomorph.trace(block, args=(X,), dynamic={"x.0": "batch:1..8"})

    with pytest.raises(ConversionError, match="batch of x is dynamic") as caught:
        LiteRtTarget().check(graph)
    assert "--input" in str(caught.value.hint)
    assert "onnx" in str(caught.value.hint)


def test_file_says_nothing_of_the_machine(block, write) -> None:
    content = write(block, X).path.read_bytes()

    for secret in (b"site-packages", b"test_target", b".py", str(Path.home()).encode()):
        assert secret not in content


SCRIPT = """
import sys, torch, isomorph
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_target import Block, X
from isomorph.exporter.precision import lower_precision
from isomorph.targets.litert.target import LiteRtOptions, LiteRtTarget
torch.manual_seed(0)
graph = isomorph.trace(Block().eval(), args=(X,))
for precision in ("fp32", "fp16"):
    made = graph if precision == "fp32" else lower_precision(graph, precision)
    LiteRtTarget().convert(made, LiteRtOptions(), Path(sys.argv[2]), precision)
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder)],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1"},
            capture_output=True,
        )
        files = sorted(folder.iterdir())
        assert [file.name for file in files] == ["fp16.tflite", "fp32.tflite"]
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])

    assert digests[0] == digests[1]


def test_half_weights_are_held_and_said_to_be_computed_in_float32(block, tmp_path: Path) -> None:
    done = isomorph.export(
        block, "litert", args=(X,), precision="fp16", output=tmp_path / "half.tflite"
    )

    (artifact,) = done.artifacts
    assert artifact.verdict == "pass"
    with LiteRtTarget().open(tmp_path / "half.tflite") as session:
        details = session.evidence.details
    assert details["half_weights"] >= 4
    assert details["half_computed_in"] == "float32"


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.lgamma(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x) + 1
        return y


def test_check_names_operator_module_and_line() -> None:
    (found,) = LiteRtTarget().check(isomorph.trace(Outer().eval(), args=(torch.rand(3),)))

    assert "lgamma" in found.operator
    assert found.module == "inner"
    assert "test_target.py:" in found.location


def test_what_the_converter_refuses_late_is_named_too(write) -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x, -1, dtype=torch.float64)

    with pytest.raises(ConversionError, match=r"softmax.*test_target\.py:\d+"):
        write(Double(), torch.rand(2, 3))


def test_check_of_an_ordinary_network_finds_nothing(block) -> None:
    assert LiteRtTarget().check(isomorph.trace(block, args=(X,))) == []


def test_capability_tells_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LiteRtTarget().capability().installed

    monkeypatch.setattr(module, "importable", lambda name: False)

    capability = LiteRtTarget().capability()
    assert not capability.builds
    assert not capability.runs
    assert capability.devices == ()
    assert capability.remedy == 'pip install "isomorph[litert]"'


def test_convert_without_the_packages_says_how_to_get_them(
    block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isomorph.targets.packages.importable", lambda name: False)

    with pytest.raises(MissingRequirementError, match=r"isomorph\[litert\]"):
        graph = isomorph.trace(block, args=(X,))
        LiteRtTarget().convert(graph, LiteRtOptions(), tmp_path, "model")
