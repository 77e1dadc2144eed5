"""TorchScript and AOTInductor show nothing inside: the stage is said, and that no more is known."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from isomorph.tests.targets.localizing import NETS, Exported, net_of


def change_bytes(path: Path, name: str) -> None:
    """A weight of ConvNet wherever its bytes lie in the archive, with right checksums."""
    held = net_of("ConvNet").state_dict()[name].numpy()
    changed = held.copy()
    changed.reshape(-1)[5] += 0.3
    with zipfile.ZipFile(path) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    assert any(held.tobytes() in content for _, content in entries)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries:
            archive.writestr(entry.filename, content.replace(held.tobytes(), changed.tobytes()))


@pytest.mark.parametrize("kind", ["torchscript", "aotinductor"])
def test_the_stage_is_named_and_the_limit_is_told(kind, invoke, tmp_path) -> None:
    exported = Exported(kind, tmp_path / "made")
    exported.folder.mkdir()
    path = exported.copy("ConvNet", tmp_path / "copy")
    change_bytes(path, "fc.weight")
    source = exported.source("ConvNet")
    model = ("--model", f"{NETS}:ConvNet", "--trust")
    done = invoke("localize", path, "--against", source, *model, "-q", "--json")
    assert done.code == 3, done.stdout
    found = done.json["localization"]
    assert found["stage"] == "file"
    assert found["culprit"] is None
    assert "no operator was found" in found["summary"]
    assert any("only the stage is known" in note for note in found["notes"])
    passed = {stage["name"]: stage["passed"] for stage in found["stages"]}
    assert passed["converted"] is True
    assert passed["file"] is False
