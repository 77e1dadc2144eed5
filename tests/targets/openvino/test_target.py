"""The OpenVINO target as a whole: capability, check, names, reproducible files, precision."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError
from isomorph.targets.openvino import target as module
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn


class Block(nn.Module):
    """Convolution, attention, a norm and a returned input: the usual parts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(self.stem(x).flatten(2).transpose(1, 2)).mean(1), x


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))

SCRIPT = """
import sys, torch, isomorph
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_target import Block, X
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
torch.manual_seed(0)
if sys.argv[3] == "2":  # advance the counters that OpenVINO names its nodes by
    import openvino
    for _ in range(7):
        openvino.opset13.constant(1.0)
graph = isomorph.trace(Block().eval(), args=(X,), dynamic={"x.0": "batch:1..8"})
before = graph.fingerprint()
OpenVinoTarget().convert(graph, OpenVinoOptions(), Path(sys.argv[2]), "model")
assert graph.fingerprint() == before
"""


def test_two_processes_write_the_same_bytes_and_nothing_of_the_machine(tmp_path: Path) -> None:
    digests = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder), seed],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1"},
        )
        files = sorted(folder.iterdir())
        assert [file.name for file in files] == ["model.bin", "model.xml"]
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])

    assert digests[0] == digests[1]
    content = (tmp_path / "1" / "model.xml").read_bytes()
    for secret in (b"site-packages", b"test_target", b"OpenVINO Runtime", str(tmp_path).encode()):
        assert secret not in content


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


def test_check_and_convert_name_operator_module_and_line(tmp_path: Path) -> None:
    graph = isomorph.trace(Outer().eval(), args=(torch.rand(3),))

    (found,) = OpenVinoTarget().check(graph)

    assert "lgamma" in found.operator
    assert found.module == "inner"
    assert "test_target.py:" in found.location
    with pytest.raises(ConversionError, match=r"lgamma.*inner.*test_target\.py:"):
        OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "model")
    assert not list(tmp_path.iterdir())


def test_operators_whose_translation_is_wrong_are_refused() -> None:
    class Distances(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cdist(x, x, p=1.0)

    graph = isomorph.trace(Distances().eval(), args=(torch.randn(30, 4),))
    assert [found.reason for found in OpenVinoTarget().check(graph)]


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.tensor([2**40, 3]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x + 2**33, x * self.seed[0], x[1:], x.float() * 2**33


def test_whole_numbers_beyond_int32_are_refused_by_name() -> None:
    graph = isomorph.trace(Large().eval(), args=(torch.arange(4),))
    found = [str(item) for item in OpenVinoTarget().check(graph)]
    assert len(found) == 2
    assert "8589934592 is beyond int32" in found[0]
    assert "seed holds 1099511627776" in found[1]


def test_floor_division_of_floats_that_would_round_first_is_refused() -> None:
    class Tenths(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x // 0.1

    graph = isomorph.trace(Tenths().eval(), args=(torch.rand(4),))
    (found,) = OpenVinoTarget().check(graph)
    assert "rounds a quotient" in found.reason


def test_an_error_of_the_library_is_wrapped(tmp_path: Path, monkeypatch) -> None:
    from isomorph.targets.openvino import convert

    def broken(model: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(convert, "guard_attention", broken)
    graph = isomorph.trace(nn.ReLU().eval(), args=(torch.rand(4),))
    with pytest.raises(ConversionError, match="list index"):
        OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "model")


def test_recurrent_layer_that_would_be_unrolled_is_refused() -> None:
    graph = isomorph.trace(
        nn.RNN(4, 5, batch_first=True).eval(),
        args=(torch.randn(2, 6, 4),),
        dynamic={"input.1": "time:1..9"},
    )
    (found,) = OpenVinoTarget().check(graph)
    assert "rnn_tanh" in found.operator
    assert "dynamic time" in found.reason


def test_complex_border_is_refused_by_name(tmp_path: Path) -> None:
    class Complex(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"spectrum": torch.view_as_complex(x)}

    graph = isomorph.trace(Complex().eval(), args=(torch.randn(3, 2),))
    with pytest.raises(ConversionError, match="spectrum is complex64"):
        OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "model")


def test_capability_and_errors_without_the_package(tmp_path: Path, monkeypatch) -> None:
    assert OpenVinoTarget().capability().installed

    monkeypatch.setattr(module, "importable", lambda name: False)
    monkeypatch.setitem(sys.modules, "openvino", None)

    capability = OpenVinoTarget().capability()
    assert (capability.builds, capability.runs, capability.devices) == (False, False, ())
    assert capability.remedy == 'pip install "isomorph[openvino]"'
    with pytest.raises(MissingRequirementError, match=r"isomorph\[openvino\]"):
        OpenVinoTarget().open(tmp_path / "model.xml")


class Halved(nn.Module):
    """Half weights and arithmetic inside a float32 border, as `--precision` makes them."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear, self.dtype = nn.Linear(8, 8).to(dtype), dtype

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x.to(self.dtype))).float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_stay_half_and_the_evidence_tells_what_ran(dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = isomorph.trace(Halved(dtype).eval(), args=(torch.randn(2, 8),))
    artifact = OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "model")
    assert artifact.files[1].stat().st_size < 8 * 9 * 4  # bytes of the weights in float32
    with OpenVinoTarget().open(artifact.path) as session:
        assert session.evidence.details["half_operators"].startswith("computed in ")
        found = session.run({"x": torch.ones(2, 8).numpy()})
        wanted = Halved(dtype)
        assert found["output_0"].dtype.name == "float32"
        assert found["output_0"].shape == wanted(torch.ones(2, 8)).shape


def test_values_at_fp16_pass_and_the_evidence_tells_the_computed_precision(tmp_path: Path) -> None:
    examples = Path(__file__).resolve().parents[3] / "examples" / "digits"
    result = isomorph.export(
        examples / "digits.pt",
        "openvino",
        model=f"{examples / 'train.py'}:DigitsNet",
        inputs="x=1x1x8x8",
        data=examples / "samples.npz",
        precision="fp16",
        output=tmp_path / "net.xml",
        require="executed",
    )
    (found,) = result.artifacts
    assert found.verdict == "pass"
    assert found.evidence.details["half_operators"].startswith("computed in f32")
