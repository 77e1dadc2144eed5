"""Several devices in one check. A stand-in target has the devices `cpu`, `cuda` and `gpu`; the GPU
is a stand-in too: eager "on cuda" is a module on the CPU that computes a little differently."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import isomorph
import jsonschema
import numpy as np
import pytest
import torch
from isomorph.errors import MissingRequirementError, UsageError
from isomorph.targets import registry
from isomorph.targets.base import Artifact, Capability, Evidence
from isomorph.targets.tf32 import tf32_allowed
from isomorph.validation import devices
from isomorph.validation.report.document import document_of, schema


class Net(torch.nn.Module):
    """Weights, a sum that rounds, and a decision."""

    def __init__(self, off: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(16, 8)
        self.off = off

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y * (1 + self.off), (y > 0)


@dataclass(frozen=True)
class NoOptions:
    """The stand-in target has no options."""


class FakeSession:
    """Computes with a module, and knows whether TF32 was allowed when it ran."""

    seen: ClassVar[list[tuple[str, bool]]] = []

    def __init__(self, signature, module, device: str) -> None:
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self.evidence = Evidence("executed", "fake", "1", device)
        self._module, self._device = module, device

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def run(self, inputs):
        self.seen.append((self._device, tf32_allowed()))
        with torch.no_grad():
            values = self._module(torch.from_numpy(np.array(inputs["x"])))
        return {s.name: v.numpy() for s, v in zip(self.outputs, values, strict=True)}


class FakeTarget:
    """`here` are the devices of this machine, `off` by how much the artifact is wrong on each."""

    name, suffix, extra, options_type, precisions = "fake", ".fake", "", NoOptions, ("fp32",)

    def __init__(self, here=("cpu", "cuda"), off=None) -> None:
        self.here, self.off = tuple(here), off or {}

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.fake",)

    def capability(self) -> Capability:
        remedies = {"cuda": "buy a GPU", "gpu": "install its driver"}
        remedies = {k: v for k, v in remedies.items() if k not in self.here}
        return Capability(True, "1", True, True, self.here, device_remedies=remedies)

    def check(self, graph):
        return []

    def convert(self, graph, options, directory, stem):
        path = directory / f"{stem}.fake"
        path.write_text("a stand-in")
        return Artifact(path, (path,), "fake", graph.inputs, graph.outputs)

    def open(self, artifact, device="cpu", signature=None):
        if device not in self.here:
            raise MissingRequirementError(f"no {device} here", hint="buy one")
        return FakeSession(signature, Net(self.off.get(device, 0.0)), device)


@pytest.fixture
def target(monkeypatch):
    """Puts a stand-in target in the registry: `target(here=..., off=...)`."""

    def make(**how) -> FakeTarget:
        made = FakeTarget(**how)
        get = registry.get
        monkeypatch.setattr(registry, "get", lambda name: made if name == "fake" else get(name))
        monkeypatch.setattr(registry, "of_suffix", lambda name: made)
        FakeSession.seen.clear()
        return made

    return make


@pytest.fixture
def gpu(monkeypatch):
    """A stand-in GPU, on which eager is wrong by a share `off`; lists what ran there."""
    ran: list[tuple[str, bool]] = []

    def make(off: float) -> list[tuple[str, bool]]:
        @contextmanager
        def run_eager_on(device, module):
            ran.append((device, tf32_allowed()))
            yield Net(off)

        monkeypatch.setattr(devices, "run_eager_on", run_eager_on)
        monkeypatch.setattr(devices, "moved", lambda value, device: value)
        return ran

    return make


def export(tmp_path, **how):
    (artifact,) = isomorph.export(
        Net(), "fake", args=(torch.randn(4, 16),), output=f"{tmp_path}/", **how
    ).artifacts
    return artifact


def test_each_device_has_its_report_and_eagers_floor_there(target, gpu, tmp_path):
    """100 floors off on the CPU is a pass on a GPU where eager is as far off, and only there."""
    target(off={"cpu": 1e-5, "cuda": 1e-5})
    gpu(1e-5)
    artifact = export(tmp_path, devices=("cpu", "cuda"))
    on_cpu, on_gpu = artifact.reports
    assert (on_cpu.evidence.device, on_cpu.verdict) == ("cpu", "fail")
    assert (on_gpu.evidence.device, on_gpu.verdict) == ("cuda", "pass"), on_gpu.reason
    assert artifact.verdict == "fail"
    assert on_cpu.eager_difference == ()
    difference = {entry.output: entry for entry in on_gpu.eager_difference}
    assert list(difference) == ["output_0", "output_1"]
    assert difference["output_0"].peak_ratio > 6
    assert 0 < difference["output_0"].max_abs < 1
    assert difference["output_1"].mismatches == 0
    assert any("eager model itself differs on cuda" in note for note in on_gpu.notes)
    jsonschema.validate(json.loads(json.dumps(document_of(artifact.reports))), schema())


def test_a_fault_above_eagers_floor_on_the_gpu_fails(target, gpu, tmp_path):
    target(off={"cuda": 1e-3})
    gpu(1e-7)
    on_cpu, on_gpu = export(tmp_path, devices=("cpu", "cuda")).reports
    assert (on_cpu.verdict, on_gpu.verdict) == ("pass", "fail")
    assert any(note.startswith("eager on cuda, in noise floors") for note in on_gpu.notes)


def test_where_eager_does_not_run_the_floor_is_the_cpus_and_a_note_says_so(target, tmp_path):
    target(here=("cpu", "cuda", "gpu"), off={"cuda": 1e-5})
    reports = export(tmp_path, devices=("cuda", "gpu")).reports
    assert [report.verdict for report in reports] == ["fail", "pass"]
    if not torch.cuda.is_available():
        assert any("eager does not run on cuda (torch" in note for note in reports[0].notes)
    assert any("torch does not run on gpu" in note for note in reports[1].notes)


@pytest.mark.parametrize("asked", [False, True])
def test_tf32_is_off_unless_asked_for_and_then_told(asked, target, gpu, tmp_path):
    target()
    ran = gpu(0.0)
    (report,) = export(tmp_path, devices=("cuda",), tf32=asked).reports
    assert ran == [("cuda", asked)]
    assert {allowed for _, allowed in FakeSession.seen} == {asked}
    assert (devices.TF32_NOTE in report.notes) is asked
    assert not tf32_allowed()


def test_a_missing_device_is_told_and_the_others_are_checked(target, tmp_path):
    target(here=("cpu",))
    artifact = export(tmp_path, devices=("cuda", "cpu"))
    missing, ran = artifact.reports
    assert (missing.verdict, missing.evidence.kind, missing.evidence.device) == (
        "unverified",
        "built",
        "cuda",
    )
    assert missing.reason.startswith("not run on cuda: ")
    assert "buy a GPU" in missing.reason
    assert ran.verdict == "pass"
    assert (artifact.verdict, artifact.evidence.device) == ("unverified", "cpu")
    assert artifact.failure() is None
    assert artifact.path.is_file()


def test_require_makes_a_missing_device_a_failure(target, tmp_path):
    target(here=("cpu",))
    with pytest.raises(MissingRequirementError, match="not run on cuda") as error:
        export(tmp_path, devices=("cpu", "cuda"), require="evaluated")
    assert error.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("asked", [("cuda",), ("cuda", "gpu")])
def test_where_no_device_is_here_nothing_is_done(asked, target, tmp_path):
    target(here=("cpu",))
    with pytest.raises(MissingRequirementError):
        export(tmp_path, devices=asked)
    assert list(tmp_path.iterdir()) == []


def test_a_device_given_twice_or_unknown_is_a_usage_error(target, tmp_path):
    target()
    for asked in (("cpu", "cpu"), ("cpu", "abacus")):
        with pytest.raises(UsageError):
            export(tmp_path, devices=asked)


@pytest.fixture
def written(target, tmp_path, monkeypatch):
    """A checkpoint and its artifact as the command line sees them, on a machine without a GPU."""
    target(here=("cpu",))
    monkeypatch.chdir(tmp_path)
    torch.save(Net().state_dict(), "net.pt")
    (tmp_path / "net.fake").write_text("a stand-in")
    return ("validate", "net.fake", "--against", "net.pt", "--model", f"{__file__}:Net", "-q")


def test_validate_tells_of_a_missing_device(written, invoke):
    both = (*written, "-i", "x=4x16", "--device", "cpu", "--device", "cuda")
    done = invoke(*both)
    assert done.code == 0, done.stderr
    assert "UNVERIFIED" in done.stdout
    assert "not run on cuda" in done.stdout
    found = invoke(*both, "--json").json
    assert [report["verdict"] for report in found["reports"]] == ["pass", "unverified"]
    jsonschema.validate(found, schema())
    done = invoke(*both, "--require", "evaluated")
    assert done.code == 6
    assert "not run on cuda" in done.stderr
    assert "PASS" in done.stdout, "the report is printed, whatever is required"
    assert invoke(*written, "-i", "x=4x16", "--device", "cuda").code == 6


def test_validate_on_one_device_prints_one_report(written, invoke):
    found = invoke(*written, "-i", "x=4x16", "--json").json
    assert (found["verdict"], found["eager_difference"]) == ("pass", [])
    assert found["seconds"].keys() >= {"load", "capture", "parity"}
    assert found["versions"] == {"torch": torch.__version__, "fake": "1"}


def test_a_fault_on_one_device_outweighs_a_missing_one(written, target, invoke):
    target(here=("cpu", "gpu"), off={"gpu": 0.01})
    all_three = [part for name in ("cpu", "cuda", "gpu") for part in ("--device", name)]
    done = invoke(*written, "-i", "x=4x16", *all_three, "--require", "executed")
    assert done.code == 3, done.stderr
    assert "fails on gpu" in done.stderr


def test_weights_are_moved_once_and_the_module_stays_where_it_is(monkeypatch):
    """`meta` stands for the GPU: it holds no values, but tensors move there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    net = torch.nn.Sequential(Net(), torch.nn.BatchNorm1d(8))
    net[0].tied = net[0].linear.weight
    with devices.run_eager_on("meta", net) as there:
        tensors = [*there.parameters(), *there.buffers()]
        assert {tensor.device.type for tensor in tensors} == {"meta"}
        assert there[0].tied is there[0].linear.weight
        assert not there.training
    tensors = [*net.parameters(), *net.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    assert net.training
