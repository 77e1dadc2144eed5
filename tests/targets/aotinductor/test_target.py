"""The AOTInductor target as a whole: what is compiled, what it says, what it leaves behind."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError
from isomorph.targets import packages
from isomorph.targets.aotinductor import target as module
from isomorph.targets.aotinductor.target import AotInductorOptions, AotInductorTarget
from torch import Tensor, nn

TARGET = AotInductorTarget()


class Border(nn.Module):
    """Whole numbers, booleans, no dimensions, passthroughs, duplicates, bfloat16, dynamic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(3, 3).bfloat16()

    def forward(
        self, x: Tensor, count: Tensor, flag: Tensor, state: Tensor, h: Tensor
    ) -> dict[str, Tensor]:
        state.add_(1.0)
        y = x.relu()
        steps = torch.arange(x.shape[1]) + count
        return {
            "whole": x,
            "y": y,
            "same": y,
            "n": steps,
            "f": ~flag,
            "mean": x.mean(),
            "low": self.low(h),
        }


def test_every_kind_of_output_comes_back_at_every_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    args = (torch.randn(2, 5, 3), torch.tensor(4), torch.tensor(True), torch.zeros(3))
    args += (torch.randn(2, 3).bfloat16(),)
    dynamic = {"x.0": "batch:1..4", "x.1": "time:2..8", "h.0": "batch:1..4"}
    net = Border().eval()
    graph = isomorph.trace(net, args=args, dynamic=dynamic)
    before = graph.fingerprint(), torch.random.get_rng_state(), dict(os.environ)
    path = TARGET.convert(graph, AotInductorOptions(), tmp_path, "border").path
    assert graph.fingerprint() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])
    assert dict(os.environ) == before[2]
    assert [p.name for p in tmp_path.iterdir()] == ["border.aoti.pt2"]

    with TARGET.open(path) as session:
        assert session.inputs == graph.inputs
        assert session.outputs == graph.outputs
        for batch, time in ((1, 2), (2, 5), (4, 8)):
            x, h = torch.randn(batch, time, 3), torch.randn(batch, 3).bfloat16()
            inputs = {"x": x, "count": args[1], "flag": args[2], "state": torch.ones(3)}
            given = {name: value.numpy() for name, value in inputs.items()}
            found = session.run(given | {"h": h.float().numpy()})
            expected = graph.run(inputs | {"h": h})
            for name, value in expected.items():
                assert found[name].shape == tuple(value.shape), name
                np.testing.assert_allclose(
                    found[name], value.float().numpy(), rtol=1e-2 if name == "low" else 1e-6
                )
            np.testing.assert_array_equal(given["x"], x.numpy())
        assert (found["n"].dtype, found["f"].dtype) == (np.int64, np.bool_)
        assert found["low"].dtype == np.float32


def test_another_process_writes_the_same_bytes_and_leaves_no_files(package, tmp_path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "CXX") if name in os.environ}
    subprocess.run(
        [
            *(sys.executable, "-m", "isomorph", "export", str(package.checkpoint)),
            *("-f", "aotinductor", "--no-validate", "-o", str(tmp_path / "net.aoti.pt2")),
            *package.arguments,
        ],
        check=True,
        cwd=tmp_path,
        env={
            **kept,
            "PYTHONHASHSEED": "7",
            "TMPDIR": str(tmp_path / "tmp"),
            "HOME": str(tmp_path / "home"),
            "OMP_NUM_THREADS": "2",
        },
        capture_output=True,
    )

    digests = {
        hashlib.sha256(p.read_bytes()).hexdigest()
        for p in (package.path, tmp_path / "net.aoti.pt2")
    }
    assert len(digests) == 1
    left = [p for folder in ("tmp", "home") for p in (tmp_path / folder).rglob("*") if p.is_file()]
    assert left == []


def test_package_says_nothing_of_the_machine(package) -> None:
    with zipfile.ZipFile(package.path) as archive:
        names = archive.namelist()
        content = b"".join(archive.read(name) for name in names)

    assert not any(name.endswith((".cpp", ".S", ".o")) for name in names)
    for secret in (b"site-packages", str(Path.home()).encode(), b"/tmp/", b"isomorph-"):
        assert secret not in content


def test_check_names_an_operator_of_a_library_that_a_reader_lacks() -> None:
    @torch.library.custom_op("isomorph_aoti_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    class Uses(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.isomorph_aoti_test.twice(x)  # type: ignore[no-any-return]

    graph = isomorph.trace(Uses(), args=(torch.randn(3),))

    (found,) = TARGET.check(graph)
    assert found.operator == "isomorph_aoti_test::twice"
    assert "test_target.py:" in found.location
    with pytest.raises(ConversionError, match="isomorph_aoti_test::twice"):
        TARGET.convert(graph, AotInductorOptions(), Path("unused"), "model")


def test_without_a_compiler_nothing_is_built_and_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")

    capability = TARGET.capability()
    assert (capability.builds, capability.runs) == (False, True)
    assert "g++" in str(capability.remedy) or "xcode" in str(capability.remedy)
    graph = isomorph.trace(nn.ReLU(), args=(torch.randn(3),))
    with pytest.raises(MissingRequirementError, match="no-such-compiler"):
        TARGET.convert(graph, AotInductorOptions(), tmp_path, "model")


def test_compiler_that_fails_is_a_conversion_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "g++"
    broken.write_text(
        '#!/bin/sh\ncase "$1" in --version|-dumpversion) exec g++ "$1";; esac\nexit 1'
    )
    broken.chmod(0o755)
    monkeypatch.setattr(module, "cpp_compiler", lambda: str(broken))
    graph = isomorph.trace(nn.ReLU(), args=(torch.randn(3),))

    with pytest.raises(ConversionError, match="does not compile"):
        TARGET.convert(graph, AotInductorOptions(), tmp_path, "model")


def test_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    graph = isomorph.trace(nn.ReLU(), args=(torch.randn(3),))

    with pytest.raises(MissingRequirementError, match="no CUDA device"):
        TARGET.convert(graph, AotInductorOptions(device="cuda"), tmp_path, "model")


def test_capability_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)

    gone = TARGET.capability()
    assert (gone.builds, gone.runs, gone.devices) == (False, False, ())
    assert gone.remedy
