"""`isomorph targets` tells the truth: with every extra installed, and with none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from isomorph.targets import registry

ROOT = Path(__file__).resolve().parents[1]

# What the extras bring, as pip names the folders; the rest are the base dependencies.
BROUGHT = re.compile(
    r"(onnx|openvino|coremltools|executorch|litert|ai_edge|tensorrt)", re.IGNORECASE
)

# Formats whose own runtime needs another machine: a Mac, and a GPU that CI has not.
EVALUATED = {"tensorrt-rtx"} | ({"coreml"} if sys.platform != "darwin" else set())

EXPORT = """
import sys, torch, isomorph
isomorph.export(torch.nn.Linear(3, 2), sys.argv[1], args=(torch.randn(2, 3),), output=sys.argv[2])
"""


@pytest.fixture(scope="session")
def bare(tmp_path_factory) -> dict[str, str]:
    """An environment with this one's packages, but for those that the extras bring."""
    folder = tmp_path_factory.mktemp("bare")
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not BROUGHT.match(path.name) and not path.name.startswith("__editable__"):
            (folder / path.name).symlink_to(path)
    if not (folder / "isomorph").exists():
        (folder / "isomorph").symlink_to(ROOT)
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S leaves out site-packages, so PYTHONPATH alone says what is there.
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        **{"env": environment, "capture_output": True, "text": True, "cwd": "/"},
    )


def listed(stdout: str) -> dict[str, dict]:
    return {entry["format"]: entry for entry in json.loads(stdout)["targets"]}


@pytest.fixture(scope="session")
def without_extras(bare) -> dict[str, dict]:
    done = run(bare, "-m", "isomorph", "targets", "--json")
    assert done.returncode == 0, done.stderr
    return listed(done.stdout)


@pytest.mark.parametrize("name", [name for name in registry.names() if name != "tensorrt"])
def test_with_every_extra_what_it_says_is_so(name, invoke, tmp_path):
    entry = listed(invoke("targets", "--json").stdout)[name]
    assert entry["version"], f"{name} has no version"
    assert entry["package"], f"{name} names no package"
    assert (entry["installed"], entry["builds"], entry["runs"]) == (True, True, True)
    assert entry["remedy"] is None
    assert entry["evaluates"] == (name in EVALUATED)
    import isomorph
    import torch

    result = isomorph.export(
        torch.nn.Linear(3, 2),
        name,
        args=(torch.randn(2, 3),),
        devices=[d for d in entry["devices"] if d == "cpu"],
        output=f"{tmp_path}/",
        require="evaluated" if entry["evaluates"] else "executed",
    )
    assert result.verdict == "pass"
    assert result.artifacts[0].evidence.kind == ("evaluated" if entry["evaluates"] else "executed")


@pytest.mark.parametrize("name", registry.names())
def test_without_any_extra_what_it_says_is_so(name, bare, without_extras, tmp_path):
    entry = without_extras[name]
    done = run(bare, "-c", EXPORT, name, f"{tmp_path}/")
    if entry["builds"]:
        assert done.returncode == 0, done.stderr
        return
    extra = registry.get(name).extra
    assert f'pip install "isomorph[{extra}]"' in entry["remedy"]
    assert "MissingRequirementError" in done.stderr
    assert entry["remedy"] in done.stderr
    assert not entry["installed"]
    assert not entry["runs"]
    assert list(tmp_path.iterdir()) == []


def test_the_table_shows_the_command_that_brings_what_lacks(bare, without_extras):
    shown = run(bare, "-m", "isomorph", "targets").stdout
    for name, entry in without_extras.items():
        assert name in shown
        if entry["remedy"]:
            assert "pip install" in shown
            assert f"isomorph[{registry.get(name).extra}]" in shown


def test_targets_without_an_extra_need_none(without_extras):
    assert without_extras["torchscript"]["builds"]
    assert without_extras["torchscript"]["runs"]
