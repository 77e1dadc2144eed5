"""The command line's contract: names, JSON, files, light start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_json_is_one_document_with_the_promised_keys(good, invoke, tmp_path):
    done = invoke(*good, "--json", "-o", tmp_path / "net.onnx")
    assert done.code == 0, done.stderr
    (artifact,) = done.json["artifacts"]
    assert set(artifact) >= {
        *("format", "path", "sha256", "bytes", "verdict", "evidence"),
        *("seconds", "report", "outputs"),
    }
    assert artifact["format"] == "onnx"
    assert artifact["verdict"] == "pass"
    assert artifact["evidence"] == "executed"
    (output,) = artifact["outputs"]
    assert set(output) >= {"name", "dtype", "shape", "peak_ratio", "rms_ratio", "max_abs"}
    assert output["peak_ratio"] <= 6
    assert output["rms_ratio"] <= 4


def test_artifact_manifest_and_report_stand_beside_the_source_by_default(
    good, invoke, checkpoint, tmp_path
):
    moved = tmp_path / "net.pt"
    moved.write_bytes(checkpoint.read_bytes())
    done = invoke("export", moved, *good[2:])
    assert done.code == 0, done.stderr
    assert names(tmp_path) == [
        "net.onnx",
        "net.onnx.manifest.json",
        "net.onnx.report.json",
        "net.pt",
    ]


def test_validate_reads_what_is_not_said_from_the_manifest(good, invoke, checkpoint, tmp_path):
    invoke(*good, "--dynamic", "x.0=batch:1..5", "-o", tmp_path / "net.onnx")
    done = invoke("validate", tmp_path / "net.onnx", "--against", checkpoint, *good[2:4], "--json")
    assert done.code == 0, done.stderr
    assert done.json["verdict"] == "pass"
    assert any("batch=5" in case["name"] for case in done.json["cases"])


def test_no_validate_writes_and_says_that_it_is_unverified(good, invoke, tmp_path):
    done = invoke(*good, "--no-validate", "-o", tmp_path / "net.onnx")
    assert done.code == 0
    assert "UNVERIFIED" in done.stdout
    assert names(tmp_path) == ["net.onnx", "net.onnx.manifest.json"]


def test_two_exports_in_two_processes_give_the_same_bytes(good, tmp_path):
    for folder in ("one", "two"):
        command = [sys.executable, "-m", "isomorph", *good, "-o", str(tmp_path / folder / "n.onnx")]
        environment = {**os.environ, "PYTHONHASHSEED": "1" if folder == "one" else "2"}
        subprocess.run(command, check=True, env=environment)
    for name in ("n.onnx", "n.onnx.manifest.json"):
        one, two = (tmp_path / folder / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("arguments", [("--help",), ("targets",), ("inspect", "{checkpoint}")])
def test_light_commands_import_neither_torch_nor_a_runtime(arguments, checkpoint):
    arguments = [a.format(checkpoint=checkpoint) for a in arguments]
    code = (
        "import sys; from isomorph.cli import cli\n"
        "try: cli(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code in (0, None), end.code\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'onnxscript', 'torchvision', 'timm', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("command", [(), ("export",), ("validate",), ("inspect",), ("targets",)])
def test_every_command_explains_itself_with_an_example(command, invoke):
    done = invoke(*command, "--help")
    assert done.code == 0
    assert "Example:" in done.stdout


def test_short_form_and_module_form_are_the_same_command(good, tmp_path):
    short = Path(sys.executable).with_name("export")
    done = subprocess.run(
        [short, *good[1:], "--no-validate", "-o", str(tmp_path / "net.onnx")], check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "net.onnx").exists()
