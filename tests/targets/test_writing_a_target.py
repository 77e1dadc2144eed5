"""The page on writing a target holds: its project, its commands and its suite run as printed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "writing-a-target.md").read_text()


@pytest.fixture
def project(replay_project, tmp_path) -> Path:
    """A copy of the page's project with the digits example beside it."""
    folder = tmp_path / "project"
    shutil.copytree(replay_project, folder)
    for name in ("digits.pt", "train.py"):
        shutil.copy(ROOT / "examples" / "digits" / name, folder)
    return folder


def run(project: Path, command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    return subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_of_the_page_run(project):
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    install, *commands = block.splitlines()
    assert install == "pip install -e ."
    assert commands[-1] == "pytest"
    printed = {}
    for command in commands:
        done = run(project, command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed[command] = done.stdout
    assert "replay" in printed["isomorph targets"]
    assert "PASS" in printed[commands[1]]
    assert (project / "digits.replay").exists()
    passed = re.search(r"(\d+) passed", printed["pytest"])
    assert passed, printed["pytest"]
    assert int(passed[1]) > 45, "pytest ran fewer checks than the suite has"
    assert "skipped" not in printed["pytest"]


def test_capability_of_the_page_is_asked_without_torch(project):
    code = (
        "import sys; from isomorph.targets import registry;"
        "print(registry.get('replay').capability().builds, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]
