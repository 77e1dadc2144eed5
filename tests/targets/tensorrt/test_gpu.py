"""CUDA is asked in another process, and only where a driver shows a device."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from isomorph.targets.tensorrt import gpu


@pytest.fixture(autouse=True)
def forget():
    gpu.find_gpu.cache_clear()
    yield
    gpu.find_gpu.cache_clear()


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """A machine with a device node."""
    node = tmp_path / "nvidiactl"
    node.touch()
    monkeypatch.setattr(gpu, "_DEVICE_NODES", (str(node),))


def test_without_a_device_node_nothing_is_started(monkeypatch):
    monkeypatch.setattr(gpu, "_DEVICE_NODES", ("/nonexistent/nvidiactl",))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("started a process"))
    assert gpu.find_gpu() is None


def test_a_gpu_is_told_by_name_and_capability(driver, monkeypatch):
    answer = SimpleNamespace(stdout='["NVIDIA L4", 8, 9]\n')
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: answer)
    assert gpu.find_gpu() == gpu.Gpu("NVIDIA L4", (8, 9))


@pytest.mark.parametrize(
    "probe", ["import os; os.kill(os.getpid(), 11)", "raise OSError", "print('?')", "print('[1]')"]
)
def test_a_driver_that_crashes_or_fails_is_no_gpu(driver, monkeypatch, probe):
    """A segfault in cuInit must not be ours."""
    monkeypatch.setattr(gpu, "_PROBE", probe)
    assert gpu.find_gpu() is None


def test_the_probe_itself_ends_cleanly_without_a_driver(driver):
    assert gpu.find_gpu() is None
