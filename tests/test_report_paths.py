"""A report that could not be written is told before any work, by every command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

COMMANDS = {
    "validate": ("validate", "absent.onnx", "--against", "absent.pt"),
    "localize": ("localize", "absent.onnx", "--against", "absent.pt"),
    "export": ("export", "absent.pt", "-i", "1x3"),
    "check": ("check",),
}


def missing_folder(folder: Path) -> Path:
    return folder / "no" / "such" / "report.html"


def a_folder(folder: Path) -> Path:
    (folder / "report").mkdir()
    return folder / "report"


def below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file" / "report.html"


def read_only_folder(folder: Path) -> Path:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (folder / "closed").mkdir(mode=0o500)
    return folder / "closed" / "report.html"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", [missing_folder, a_folder, below_a_file, read_only_folder])
def test_the_path_is_told_before_the_model_is_looked_for(
    command, place, invoke, tmp_path, monkeypatch
) -> None:
    """No model is there: to hear of the report at all is to hear of it first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "isomorph.toml").write_text('[models.net]\ncheckpoint = "absent.pt"\n')
    path = place(tmp_path)
    done = invoke(*COMMANDS[command], "--report", f"html:{path}", "-q")
    assert done.code == 7, done.stderr
    assert path.name in done.stderr
    assert done.stderr.count("error:") == 1


@pytest.mark.parametrize("place", [missing_folder, below_a_file])
def test_so_is_a_reproduction(place, invoke, tmp_path) -> None:
    script = place(tmp_path).with_suffix(".py")
    done = invoke(*COMMANDS["localize"], "--repro", script, "-q")
    assert done.code == 7, done.stderr
    assert script.name in done.stderr


def test_a_reproduction_is_a_python_file(invoke, tmp_path) -> None:
    done = invoke(*COMMANDS["localize"], "--repro", tmp_path / "script.txt", "-q")
    assert done.code == 2
