"""A broken artifact is exit 5 and one message, with every command, on every format.

Never a traceback, and never the end of the process: what a runtime would crash on is found before
it gets the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from isomorph import load
from isomorph.errors import InputFileError
from isomorph.tests.targets.localizing import Exported

HERE = Path(__file__).parent
FORMATS = (
    *("onnx", "onnx-external", "openvino", "coreml", "litert"),
    *("torchscript", "aotinductor", "executorch", "tensorrt-rtx"),
)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_damage_is_told_as_bad_input(kind, tmp_path) -> None:
    name = kind.removesuffix("-external")
    if kind == "tensorrt-rtx":
        pytest.importorskip("tensorrt_rtx")
    options = {"sm": "86"} if kind == "tensorrt-rtx" else {}
    exported = Exported(name, tmp_path / "made", options)
    exported.folder.mkdir()
    artifact = exported.copy("ConvNet", tmp_path / "whole")
    if kind == "onnx-external":
        put_weights_beside(artifact)
    outcomes = run_all(kind, artifact, exported.source("ConvNet"), tmp_path)
    assert len(outcomes) >= 4 * 2 + 4
    wrong = [o for o in outcomes if not is_told(o)]
    assert not wrong, "\n".join(map(str, wrong))


def is_told(outcome: dict[str, object]) -> bool:
    output = str(outcome["output"])
    return (
        outcome["code"] == 5
        and output.count("error:") == 1
        and "Traceback" not in output
        and outcome["reported"] in ([], [5])
    )


def put_weights_beside(path: Path) -> None:
    import onnx

    model = onnx.load(str(path))
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        location=f"{path.name}.data",
        size_threshold=0,
    )
    assert path.with_name(f"{path.name}.data").stat().st_size > 100


def run_all(kind: str, artifact: Path, source: Path, folder: Path) -> list[dict[str, object]]:
    """What each command said on each damage; the process must live through all of them."""
    work = folder / "work"
    work.mkdir()
    nets = HERE / "models" / "localized_nets.py"
    done = subprocess.run(
        [
            *(sys.executable, str(HERE / "broken_artifacts.py"), kind, str(artifact)),
            *(str(source), f"{nets}:ConvNet", str(work)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, (lines[-1], done.returncode, done.stderr[-2000:])
    return [line for line in lines if "end" in line]


def spoil(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


def spoil_code(path: Path) -> None:
    """A byte in the code of a TorchScript archive that is no text, with a right checksum."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        held = {entry: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in held.items():
            wrong = content[:40] + b"\xf2" + content[41:]
            archive.writestr(entry.filename, wrong if entry.filename.endswith(".py") else content)


DAMAGES = {
    "litert": lambda path: spoil(path, b"act", b"a\xeet"),
    "openvino": lambda path: spoil(path, b"encoding='utf-8'", b"encoding='ut7-8'"),
    "torchscript": spoil_code,
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_names_that_are_no_text_are_damage(kind, tmp_path) -> None:
    """Found by changing bytes at random: each was reported as a bug of ours."""
    exported = Exported(kind, tmp_path / "made")
    exported.folder.mkdir()
    path = exported.copy("ConvNet", tmp_path / "whole")
    DAMAGES[kind](path)
    with pytest.raises(InputFileError), load(path):
        pass
