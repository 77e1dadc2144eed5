"""Opening packages: trust first, then checksums, then native code."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.targets.aotinductor import session as module
from isomorph.targets.aotinductor.session import AotInductorSession

X = np.zeros((2, 3, 24, 24), np.float32)


def test_validate_without_trust_says_why_it_does_not_open_it(package, invoke) -> None:
    done = invoke("validate", package.path, "--against", package.checkpoint, *package.arguments)
    assert done.code == 5
    assert "native code" in done.stderr
    assert "--trust" in done.stderr


def test_load_asks_for_trust_too(package) -> None:
    with pytest.raises(InputFileError, match="native code"):
        isomorph.load(package.path)

    with isomorph.load(package.path, trust=True) as session:
        assert session.run({"x": X})["output_0"].shape == (2, 5)
        assert session.evidence.kind == "executed"
        assert session.evidence.device == "cpu"


def test_size_outside_the_range_is_refused(package) -> None:
    with AotInductorSession(package.path) as session:
        for batch in (10, 0):
            with pytest.raises(UsageError, match=rf"x has batch={batch}.*1\.\.9"):
                session.run({"x": np.zeros((batch, 3, 24, 24), np.float32)})


def test_outputs_are_the_callers_own(package) -> None:
    with AotInductorSession(package.path) as session:
        first = session.run({"x": X})["output_0"]
        kept = first.copy()
        session.run({"x": X + 1})
        np.testing.assert_array_equal(first, kept)


def test_closed_session_refuses_to_run_and_leaves_no_files(package, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = {p.name for p in Path("/tmp").iterdir()}
    session = AotInductorSession(package.path)
    assert session.run({"x": X})
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": X})
    left = [p for p in tmp_path.rglob("*") if p.is_file()]
    new = [Path("/tmp", n) for n in {p.name for p in Path("/tmp").iterdir()} - before]
    assert not left
    assert not [p for p in new if list(p.rglob("*.so")) and p.is_dir()]


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"not a zip archive" * 100)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def with_another_member(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data/aotinductor/model/../../evil.so", b"x")


def with_another_library(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data/aotinductor/model/another.so", b"x")


@pytest.mark.parametrize(
    "damage", [truncated, empty, garbage, flipped, with_another_member, with_another_library]
)
def test_damaged_package_is_refused_before_native_code_is_loaded(
    damage: Callable[[Path], None], package, tmp_path, monkeypatch
) -> None:
    def load(*_: Any) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(module, "_load", load)
    damaged = tmp_path / "net.aoti.pt2"
    shutil.copy(package.path, damaged)
    damage(damaged)
    with pytest.raises(InputFileError):
        AotInductorSession(damaged)


def test_package_for_another_device_is_a_usage_error(package, monkeypatch) -> None:
    monkeypatch.setattr(module, "torch_device", lambda device, name: torch.device("cuda", 0))
    with pytest.raises(UsageError, match="compiled for cpu"):
        AotInductorSession(package.path, "cuda")


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "absent.aoti.pt2", tmp_path):
        with pytest.raises(InputFileError):
            AotInductorSession(missing)
