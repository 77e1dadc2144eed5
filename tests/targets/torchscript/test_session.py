"""Opening TorchScript files: what runs, what is refused, what is restored."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, MissingRequirementError, UsageError
from isomorph.targets.torchscript.session import TorchScriptSession
from isomorph.targets.torchscript.target import TorchScriptOptions, TorchScriptTarget
from torch import Tensor, nn


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x @ y, x


@pytest.fixture
def path(tmp_path: Path) -> Path:
    graph = isomorph.trace(
        TwoInputs(),
        args=(torch.randn(2, 4), torch.randn(4, 2)),
        dynamic={"x.0": "rows:1..9", "y.1": "rows:1..9"},
    )
    return TorchScriptTarget().convert(graph, TorchScriptOptions(), tmp_path, "model").path


X, Y = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)


def test_file_alone_tells_its_border(path: Path) -> None:
    with TorchScriptSession(path) as session:
        assert [(spec.name, spec.dtype) for spec in session.inputs] == [
            ("x", "float32"),
            ("y", "float32"),
        ]
        assert session.evidence.kind == "executed"
        assert session.evidence.details["fusion"] == "off"
        found = session.run({"y": Y, "x": X})
    np.testing.assert_array_equal(found["output_0"], X @ Y)


def test_outputs_share_nothing_with_inputs_or_earlier_outputs(path: Path) -> None:
    with TorchScriptSession(path) as session:
        given = X.copy()
        name = session.outputs[1].name
        first = session.run({"x": given, "y": Y})[name]
        first[:] = 7
        again = session.run({"x": given, "y": Y})[name]
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(again, X)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X}, "no value for y"),
        ({"x": X.astype(np.float64), "y": Y}, "x is float64 where the model takes float32"),
        ({"x": X[:, :3], "y": Y}, "x has shape 3x3"),
        ({"x": X, "y": Y[:, :2]}, "y has rows=2 where another input has 3"),
    ],
)
def test_input_that_does_not_fit_is_a_usage_error(
    inputs: dict[str, Any], message: str, path: Path
) -> None:
    with TorchScriptSession(path) as session, pytest.raises(UsageError, match=message):
        session.run(inputs)


def test_closed_session_refuses_to_run(path: Path) -> None:
    session = TorchScriptSession(path)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": X, "y": Y})


def test_settings_of_the_process_are_as_before(path: Path) -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    fuser = torch._C._jit_texpr_fuser_enabled()
    try:
        with TorchScriptSession(path) as session:
            session.run({"x": X, "y": Y})
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        assert torch._C._jit_texpr_fuser_enabled() is fuser
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before


def test_float32_is_computed_in_float32_whatever_the_process_allows(path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    y = np.random.default_rng(1).standard_normal((4, 3), np.float32)
    before = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with TorchScriptSession(path) as session:
            found = session.run({"x": x, "y": y})["output_0"]
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before
    np.testing.assert_allclose(found, x @ y, rtol=1e-5, atol=1e-6)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"not a zip archive" * 100)


def without_names(path: Path) -> None:
    rewrite(path, lambda name, content: None if name.endswith("isomorph.json") else content)


def with_unreadable_names(path: Path) -> None:
    rewrite(path, lambda name, content: b"{" if name.endswith("isomorph.json") else content)


def with_broken_source(path: Path) -> None:
    rewrite(path, lambda name, content: b"def (" if name.endswith("torch__.py") else content)


def rewrite(path: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if (changed := change(name, content)) is not None:
                archive.writestr(name, changed)


@pytest.mark.parametrize(
    "damage",
    [truncated, empty, garbage, without_names, with_unreadable_names, with_broken_source],
)
def test_damaged_file_is_refused(damage: Callable[[Path], None], path: Path) -> None:
    damage(path)
    with pytest.raises(InputFileError):
        TorchScriptSession(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "absent.ts", tmp_path):
        with pytest.raises(InputFileError):
            TorchScriptSession(missing)


def test_file_whose_program_writes_files_is_refused_before_it_runs(
    path: Path, tmp_path: Path
) -> None:
    stolen = tmp_path / "stolen"

    def steal(name: str, content: bytes) -> bytes:
        call = f'    torch.save(x, "{stolen}")\n    return'.encode()
        return content.replace(b"    return", call) if name.endswith("torch__.py") else content

    rewrite(path, steal)
    with pytest.raises(InputFileError, match="save"):
        TorchScriptSession(path)
    assert not stolen.exists()


def test_file_that_isomorph_did_not_write_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.ts"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(foreign))
    with pytest.raises(InputFileError, match="not written by Isomorph"):
        TorchScriptSession(foreign)


def test_device_that_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingRequirementError, match="no CUDA device"):
        TorchScriptSession(path, "cuda")
    with pytest.raises(UsageError, match="cpu or cuda"):
        TorchScriptSession(path, "tpu")
