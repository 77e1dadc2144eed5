"""The ONNX target as a whole: options, capability, check, reproducible files, both paths."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import isomorph
import onnx
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError, UsageError
from isomorph.targets import packages
from isomorph.targets.onnx import torchlib
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from torch import Tensor, nn


class Block(nn.Module):
    """Convolution, in-place activations, attention and a dropout: the usual parts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.layer(tokens).mean(1))
        return logits


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("opset", range(18, 24))
def test_every_opset_in_range_computes_the_same(opset: int, block: Block, write: Any) -> None:
    written = write(block, X, opset=opset)

    imports = {entry.domain: entry.version for entry in onnx.load(written.path).opset_import}
    assert imports[""] == opset
    written.assert_computes((X,), 1e-4)


@pytest.mark.parametrize("options", [{"opset": 17}, {"opset": 99}, {"external_data": "maybe"}])
def test_option_out_of_range_is_a_usage_error(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        OnnxOptions(**options)


def test_unoptimised_file_computes_the_same(block: Block, write: Any) -> None:
    write(block, X, optimize=False).assert_computes((X,), 1e-4)


def test_ordinary_network_needs_no_retrace(
    block: Block, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrace(*_: Any) -> None:
        raise AssertionError("retraced")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", retrace)

    write(block, X).assert_computes((X,), 1e-4)


@pytest.mark.parametrize(
    "gone",
    [
        "torch.onnx._internal.exporter._core._exported_program_to_onnx_program",
        "torch.onnx._internal.exporter._registration.OnnxDecompMeta",
    ],
)
def test_torch_without_the_private_names_goes_the_public_way(
    gone: str, block: Block, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(gone)
    torchlib.fast_path_available.cache_clear()
    try:
        assert not torchlib.fast_path_available()
    finally:
        monkeypatch.undo()
    monkeypatch.setattr(torchlib, "fast_path_available", lambda: False)

    write(block, X).assert_computes((X,), 1e-4)


def test_changed_private_signature_turns_the_fast_path_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.onnx._internal.exporter import _core

    monkeypatch.setattr(_core, "_exported_program_to_onnx_program", lambda program: None)
    torchlib.fast_path_available.cache_clear()
    try:
        assert not torchlib.fast_path_available()
    finally:
        monkeypatch.undo()
        torchlib.fast_path_available.cache_clear()
    assert torchlib.fast_path_available()


def test_file_says_nothing_of_the_machine(block: Block, write: Any) -> None:
    written = write(block, X)

    content = written.path.read_bytes()
    for secret in (b"site-packages", b"stack_trace", b"test_target", str(Path.home()).encode()):
        assert secret not in content
    model = onnx.load(written.path)
    assert model.producer_name == "isomorph"
    assert not model.doc_string
    assert not model.metadata_props
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)


SCRIPT = """
import sys, torch, isomorph
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_target import Block, X
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
torch.manual_seed(0)
graph = isomorph.trace(Block().eval(), args=(X,), dynamic={"x.0": "batch:1..8"})
where = sys.argv[3]
OnnxTarget().convert(graph, OnnxOptions(external_data=where), Path(sys.argv[2]), "model")
"""


@pytest.mark.parametrize("where", ["never", "always"])
def test_two_processes_write_the_same_bytes(where: str, tmp_path: Path) -> None:
    digests = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder), where],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1"},
        )
        digests.append(
            [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())]
        )

    assert digests[0] == digests[1]


def test_check_names_operator_module_and_line() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.hermite_polynomial_h(x, x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x) + 1
            return y

    graph = isomorph.trace(Outer().eval(), args=(torch.rand(3, 3),))

    (found,) = OnnxTarget().check(graph)

    assert "hermite_polynomial_h" in found.operator
    assert found.module == "inner"
    assert "test_target.py:" in found.location


def test_check_of_an_ordinary_network_finds_nothing(block: Block) -> None:
    assert OnnxTarget().check(isomorph.trace(block, args=(X,))) == []


def test_checker_has_the_last_word(
    block: Block, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def object_to(path: str) -> None:
        raise onnx.checker.ValidationError("bad node")

    monkeypatch.setattr(onnx.checker, "check_model", object_to)

    with pytest.raises(ConversionError, match="bad node"):
        write(block, X)


def test_capability_tells_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OnnxTarget().capability().installed

    monkeypatch.setattr(packages, "find_spec", lambda name: None)

    capability = OnnxTarget().capability()
    assert not capability.builds
    assert not capability.runs
    assert capability.remedy == 'pip install "isomorph[onnx]"'


def test_convert_without_the_packages_says_how_to_get_them(
    block: Block, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)

    with pytest.raises(MissingRequirementError, match=r"isomorph\[onnx\]"):
        write(block, X)


class Nearly(nn.Module):
    """Numbers that an optimiser may take for 0 or 1, where it shows."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        zero = x - x
        return {
            "sum": x / ((zero * zero).sum() + 1e-12),
            "difference": x / ((zero * zero).sum() - 1e-12),
            "product": (x * 1.000004 - x) * 1e6,
            "quotient": (x / 1.000004 - x) * 1e6,
        }


def test_numbers_near_0_and_1_are_not_taken_for_them(write: Any) -> None:
    write(Nearly(), X).assert_computes((X,))
