"""A target in a child process: the same artifact, and a crash is a message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, InputFileError, UsageError
from isomorph.targets.isolation import IsolatedTarget
from isomorph.targets.onnx.target import OnnxTarget

# A package with targets whose native code crashes, as a third party's might.
CRASHING = """
import os, signal
from isomorph.targets.onnx.target import OnnxTarget

class Crashing(OnnxTarget):
    name, suffix = "crashing", ".crashing"

    def convert(self, graph, options, directory, stem):
        (directory / "half-written").write_text("")
        os.kill(os.getpid(), signal.SIGSEGV)

class CrashingAtRun(OnnxTarget):
    name, suffix = "crashing-at-run", ".run.crashing"

    def files(self, stem):
        return (f"{stem}.run.crashing",)

    def open(self, artifact, device="cpu", signature=None):
        session = super().open(artifact, device, signature)
        session.run = lambda inputs: os.abort()
        return session

class Sleeping(OnnxTarget):
    name, suffix = "sleeping", ".sleeping"

    def open(self, artifact, device="cpu", signature=None):
        import time

        time.sleep(600)

class Broken(OnnxTarget):
    name, suffix = "broken", ".broken"

    def convert(self, graph, options, directory, stem):
        return 1 // 0
"""


@pytest.fixture
def crashing(tmp_path, monkeypatch) -> None:
    """Makes the package above importable with its entry points, here and in child processes."""
    package = tmp_path / "site"
    package.mkdir()
    (package / "crashing.py").write_text(CRASHING)
    info = package / "crashing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing\nVersion: 1.0\n")
    points = {"crashing": "Crashing", "crashing-at-run": "CrashingAtRun", "broken": "Broken"}
    points["sleeping"] = "Sleeping"
    lines = [f"{name} = crashing:{kind}" for name, kind in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[isomorph.targets]", *lines]) + "\n")
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())


def export(model, formats, folder: Path, **more):
    return isomorph.export(
        model, formats, args=(torch.randn(2, 4),), output=folder, isolate=True, **more
    )


def test_the_artifact_is_the_one_made_in_process(model, tmp_path):
    alone, within = tmp_path / "alone", tmp_path / "within"
    dynamic = {"input.0": "batch:1..8"}
    isolated = export(model, "onnx", f"{alone}/", dynamic=dynamic).artifacts[0]
    plain = isomorph.export(
        model, "onnx", args=(torch.randn(2, 4),), output=f"{within}/", dynamic=dynamic
    ).artifacts[0]
    assert isolated.verdict == "pass"
    assert isolated.path.read_bytes() == plain.path.read_bytes()
    assert isolated.evidence == plain.evidence


@dataclass
class Box:
    """A class that only the test's process knows."""

    value: torch.Tensor


def test_the_users_classes_stay_in_the_users_process(tmp_path):
    class Boxing(torch.nn.Module):
        def forward(self, box):
            return Box(box.value * 2)

    torch.export.register_dataclass(Box, serialized_type_name="isomorph.tests.Box")
    result = isomorph.export(
        Boxing(), "onnx", args=(Box(torch.randn(2, 3)),), output=f"{tmp_path}/", isolate=True
    )
    assert result.verdict == "pass"


def test_a_crash_while_converting_is_that_formats_error(model, tmp_path, crashing):
    crashed, good = export(model, ["crashing", "onnx"], tmp_path / "out").artifacts
    assert isinstance(crashed.error, ConversionError)
    assert "SIGSEGV" in crashed.error.message
    assert good.verdict == "pass"
    assert {path.name.split(".")[1] for path in (tmp_path / "out").iterdir()} == {"onnx"}


def test_a_crash_while_running_fails_parity(model, tmp_path, crashing):
    (crashed,) = export(model, "crashing-at-run", f"{tmp_path}/out/").artifacts
    assert crashed.verdict == "fail"
    assert "SIGABRT" in crashed.report.reason


def test_a_bug_in_the_target_comes_back_as_one(model, tmp_path, crashing):
    broken, _ = export(model, ["broken", "onnx"], tmp_path / "out").artifacts
    assert broken.error.exit_code == 1
    assert "ZeroDivisionError" in broken.error.message
    Path(broken.error.hint.split(" is in ")[1].split(";")[0]).unlink()


def test_errors_keep_their_class_and_remedy(tmp_path):
    with pytest.raises(InputFileError) as raised:
        IsolatedTarget(OnnxTarget()).open(tmp_path / "none.onnx")
    assert raised.value.hint


def test_a_session_answers_a_wrong_feed_and_goes_on(model, tmp_path):
    import numpy as np

    path = export(model, "onnx", f"{tmp_path}/").artifacts[0].path
    with IsolatedTarget(OnnxTarget()).open(path) as session:
        with pytest.raises(UsageError):
            session.run({"input": np.zeros((2, 5), np.float32)})
        assert session.run({"input": np.zeros((2, 4), np.float32)})["output_0"].shape == (2, 3)


def test_no_process_is_left_when_a_session_closes(model, tmp_path):
    path = export(model, "onnx", f"{tmp_path}/").artifacts[0].path
    with IsolatedTarget(OnnxTarget()).open(path) as session:
        process = session._child._process
        assert process.poll() is None
    assert process.poll() is not None


def test_a_worker_that_converts_dies_with_its_parent(tmp_path, crashing):
    """A parent that was killed closes the pipe, which a busy worker does not look at."""
    code = (
        "from isomorph.targets.isolation import _Child; c = _Child('sleeping');"
        "print(c._process.pid, flush=True); c.ask('open', None, 'cpu', None)"
    )
    assert_dies_with_parent(code)


def test_an_interrupted_export_leaves_no_process(nets, checkpoint, tmp_path):
    """The worker dies with the pipe, also when the parent is killed."""
    code = (
        "import sys; from isomorph.targets.isolation import _Child; c = _Child('onnx');"
        "print(c._process.pid, flush=True); sys.stdin.read()"
    )
    assert_dies_with_parent(code)


def assert_dies_with_parent(code: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    for _ in range(200):
        status = Path(f"/proc/{worker}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        signal.sigtimedwait([], 0.05)
    pytest.fail("the worker outlived its parent")
