"""A package's bytes are those of its content, and it appears all or nothing."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.hashing import sha256_of
from isomorph.targets.coreml.target import CoreMlTarget

EXPORT = """
import sys, torch, isomorph
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3))
if sys.argv[2] == "later":  # counters of torch and coremltools that went on
    isomorph.export(torch.nn.Linear(5, 5), "coreml", args=(torch.ones(1, 5),),
                    output=sys.argv[1] + ".other.mlpackage", validate=False)
isomorph.export(model.eval(), "coreml", args=(torch.ones(1, 3, 8, 8),),
                dynamic={"input.0": "batch:1..4"}, output=sys.argv[1], validate=False)
"""


def files(package: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(package)): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file()
    }


def test_two_processes_write_the_same_bytes_and_say_nothing(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EXPORT, str(tmp_path / f"{how}.mlpackage"), how],
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for how, seed in (("first", "1"), ("later", "2"))
    ]
    for process in processes:
        assert process.communicate() == (b"", b"")
        assert process.returncode == 0
    first, later = (files(tmp_path / f"{how}.mlpackage") for how in ("first", "later"))
    assert sorted(first) == sorted(later)
    assert [name for name in first if first[name] != later[name]] == []
    assert "Data/com.apple.CoreML/weights/weight.bin" in first
    left = [path.name for path in scratch.iterdir()]
    assert [name for name in left if not name.startswith("torchinductor")] == []  # torch's own


def test_the_manifest_names_every_item(write):
    package = write(torch.nn.Linear(30, 20), torch.randn(2, 30)).artifact.path
    document = json.loads((package / "Manifest.json").read_text())
    paths = [entry["path"] for entry in document["itemInfoEntries"].values()]
    assert sorted(paths) == ["com.apple.CoreML/model.mlmodel", "com.apple.CoreML/weights"]
    root = document["itemInfoEntries"][document["rootModelIdentifier"]]
    assert root["path"] == "com.apple.CoreML/model.mlmodel"


def test_coremltools_reads_the_package(write):
    from isomorph.targets.coreml.quiet import coremltools

    package = write(torch.nn.Linear(30, 20), torch.randn(2, 30)).artifact.path
    model = coremltools().models.MLModel(str(package), skip_model_load=True)
    assert [feature.name for feature in model.get_spec().description.input] == ["input"]


class Wrong(CoreMlTarget):
    """Opens the package, and adds 1 to what it computes."""

    def open(self, artifact, device="cpu", signature=None):
        session = super().open(artifact, device, signature)
        run = session.run
        session.run = lambda inputs, *rest: {k: v + 1 for k, v in run(inputs, *rest).items()}
        return session


def test_a_package_is_published_replaced_and_rejected_as_a_whole(tmp_path, monkeypatch):
    from isomorph.targets import registry

    destination = tmp_path / "m.mlpackage"

    def export(width):
        model = torch.nn.Linear(3, width)
        arguments = {"args": (torch.randn(2, 3),), "output": destination}
        return isomorph.export(model, "coreml", **arguments).artifacts[0]

    assert export(2).verdict == "pass"
    first = sha256_of(destination)
    second = export(20)
    assert (second.verdict, second.evidence.kind) == ("pass", "evaluated")
    assert sha256_of(destination) == second.sha256 != first
    monkeypatch.setattr(registry, "get", lambda name: Wrong())
    third = export(5)
    assert third.verdict == "fail"
    assert third.path == tmp_path / "m.mlpackage.rejected" / "m.mlpackage"
    assert sha256_of(third.path) == third.sha256
    assert sha256_of(destination) == second.sha256
    assert {path.name for path in tmp_path.iterdir()} == {
        *("m.mlpackage", "m.mlpackage.manifest.json", "m.mlpackage.report.json"),
        "m.mlpackage.rejected",
    }


@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_full_disk_is_an_os_error(write, captured, tmp_path, limit):
    graph = captured(torch.nn.Linear(100, 100), torch.randn(1, 100))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(graph)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_a_package_is_as_readable_as_other_files(tmp_path):
    before = os.umask(0o027)
    try:
        path = tmp_path / "model.mlpackage"
        isomorph.export(
            torch.nn.Linear(4, 40), "coreml", args=(torch.ones(1, 4),), output=path, validate=False
        )
    finally:
        os.umask(before)
    modes = {oct(p.stat().st_mode & 0o777) for p in (path, *path.rglob("*")) if p.is_dir()}
    assert modes == {"0o750"}
    assert {oct(p.stat().st_mode & 0o777) for p in path.rglob("*") if p.is_file()} == {"0o640"}
