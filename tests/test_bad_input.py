"""Bad input, full disks, interrupts: one clear message, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import resource
import runpy
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.errors import UsageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FACTORIES = """
    from torch import nn
    def raises():
        raise ValueError("no such width")
    def number():
        return 7
"""


def bad_files(folder: Path, checkpoint: Path) -> dict[str, Path]:
    files = {name: folder / f"{name}.pt" for name in ("empty", "truncated", "text", "missing")}
    files["empty"].write_bytes(b"")
    files["truncated"].write_bytes(checkpoint.read_bytes()[:-700])
    files["text"].write_text("this is no checkpoint")
    files["directory"] = folder / "directory"
    files["directory"].mkdir()
    return files


@pytest.mark.parametrize("kind", ["empty", "truncated", "text", "missing", "directory"])
def test_a_source_that_is_no_checkpoint_is_exit_5(kind, good, invoke, checkpoint, tmp_path):
    path = bad_files(tmp_path, checkpoint)[kind]
    before = names(tmp_path)
    done = invoke("export", path, *good[2:], "-o", tmp_path / "out.onnx")
    assert done.code == 5, done.stderr
    assert str(path) in done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert names(tmp_path) == before


def test_a_state_dict_without_model_is_exit_5_and_says_what_it_holds(invoke, checkpoint):
    done = invoke("export", checkpoint, "-i", "x=2x3x24x24", "-q")
    assert done.code == 5
    assert "--model" in done.stderr
    assert "stem.weight" in done.stderr


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("{nets}:SmallConvNett", "SmallConvNet"),
        ("{here}/factories.py:raises", "no such width"),
        ("{here}/factories.py:number", "int"),
        ("{here}/absent.py:Net", "absent.py"),
        ("no_such_package.module:Net", "no_such_package"),
        ("{nets}", "SPEC"),
    ],
)
def test_a_factory_that_cannot_be_used_is_exit_2(spec, told, invoke, checkpoint, nets, tmp_path):
    (tmp_path / "factories.py").write_text(textwrap.dedent(FACTORIES))
    spec = spec.format(nets=nets, here=tmp_path)
    done = invoke("export", checkpoint, "--model", spec, "-i", "x=2x3x24x24", "-q")
    assert done.code == 2, done.stderr
    if told != "SPEC":
        assert told in done.stderr


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("-i", "x=2x4x24x24"), "rejects"),
        (("-i", "y=2x3x24x24"), "no input 'y'"),
        (("-i", "x=2x3x24"), "rejects"),
        (("--dynamic", "x.9=batch"), "axis"),
        (("--dynamic", "z.0=batch"), "'z'"),
        (("--set", "opsett=18"), "opset"),
        (("--set", "opset=lots"), "opset"),
        (("-f", "onxx"), "onnx"),
        (("--precision", "fp12"), "fp12"),
        (("--no-validate", "--require", "executed"), "--require"),
        (("-o", "net.xyz"), ".onnx"),
        (("--device", "abacus"), "abacus"),
    ],
)
def test_a_request_that_does_not_fit_is_exit_2(changes, told, good, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = [a for i, a in enumerate(good) if not ("-i" in changes and i in (4, 5))]
    output = () if "-o" in changes else ("-o", tmp_path / "net.onnx")
    done = invoke(*base, *changes, *output)
    assert done.code == 2, done.stderr
    assert told in done.stderr
    assert names(tmp_path) == []


def test_the_source_is_never_the_destination(invoke, nets, checkpoint, tmp_path):
    source = tmp_path / "net.onnx"
    source.write_bytes(checkpoint.read_bytes())
    done = invoke("export", source, "--model", f"{nets}:SmallConvNet", "-i", "x=2x3x24x24", "-q")
    assert done.code == 2
    assert source.read_bytes() == checkpoint.read_bytes()


def test_without_an_input_shape_the_error_suggests_one(invoke, nets, checkpoint):
    done = invoke("export", checkpoint, "--model", f"{nets}:SmallConvNet", "-q")
    assert done.code == 2
    assert "-i 1x3x224x224" in done.stderr


def test_errors_are_one_json_document_when_json_is_asked_for(good, invoke, tmp_path):
    done = invoke(*good, "--json", "-i", "y=1", "-o", tmp_path / "net.onnx")
    assert done.code == 2
    assert done.json["error"]["code"] == 2


def test_a_destination_below_a_file_is_exit_7(good, invoke, tmp_path):
    (tmp_path / "file").write_text("")
    done = invoke(*good, "-o", tmp_path / "file" / "net.onnx")
    assert done.code == 7, done.stderr
    assert names(tmp_path) == ["file"]


def test_a_full_destination_is_exit_7_and_the_old_artifact_survives(good, tmp_path):
    """A limit on file sizes stands for a full disk: the system refuses the write the same way."""
    old = tmp_path / "net.onnx"
    old.write_bytes(b"the old artifact")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [sys.executable, "-m", "isomorph", *good, "-o", str(old)],
        **{"preexec_fn": limit, "capture_output": True, "text": True},
    )
    assert done.returncode == 7, done.stderr
    assert old.read_bytes() == b"the old artifact"
    assert names(tmp_path) == ["net.onnx"]


def test_a_destination_that_cannot_be_made_is_exit_7(good, invoke):
    assert invoke(*good, "-o", "/proc/no/such/net.onnx").code == 7


def test_a_device_that_is_not_there_is_exit_6_before_any_work(good, invoke, tmp_path):
    done = invoke(*good[:-1], "--device", "cuda", "-o", tmp_path / "net.onnx")
    assert done.code == 6
    assert "onnx-cuda" in done.stderr
    assert "load the checkpoint" not in done.stderr


def process(*arguments: str | Path, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isomorph", *map(str, arguments)]
    return subprocess.run(command, **{"capture_output": True, "text": True, **options})


def test_a_wrong_flag_is_told_as_json_too():
    done = process("export", "net.pt", "--fromat", "onnx", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == 2
    assert "--fromat" in done.stderr


def test_a_closed_stderr_does_not_change_the_outcome(good, tmp_path):
    command = shlex.join([sys.executable, "-m", "isomorph", *good, "-o", str(tmp_path / "n.onnx")])
    assert subprocess.run(f"{command} 2>&-", shell=True, check=False).returncode == 0
    assert (tmp_path / "n.onnx").exists()


def test_a_reader_that_leaves_early_does_not_change_the_outcome(good, tmp_path):
    command = shlex.join([sys.executable, "-m", "isomorph", *good, "-o", str(tmp_path / "n.onnx")])
    shell = ["bash", "-o", "pipefail", "-c", f"{command} | true"]
    assert subprocess.run(shell, check=False).returncode == 0


def test_code_of_the_model_that_exits_is_exit_2(invoke, nets, checkpoint, tmp_path):
    (tmp_path / "quits.py").write_text("import sys\ndef make():\n    sys.exit(0)\n")
    done = invoke("export", checkpoint, "--model", f"{tmp_path}/quits.py:make", "-i", "1x3", "-q")
    assert done.code == 2
    assert "sys.exit" in done.stderr


@pytest.mark.parametrize("suffix", [".manifest.json", ".report.json", ".data"])
def test_no_file_of_the_artifact_is_ever_written_onto_the_source(
    suffix, invoke, nets, checkpoint, tmp_path
):
    source = tmp_path / f"o.onnx{suffix}"
    source.write_bytes(checkpoint.read_bytes())
    done = invoke(
        *("export", source, "--model", f"{nets}:SmallConvNet", "-i", "x=2x3x24x24", "-q"),
        *("-o", tmp_path / "o.onnx"),
    )
    assert done.code == 2
    assert source.read_bytes() == checkpoint.read_bytes()
    assert names(tmp_path) == [source.name]


def test_an_old_manifest_cannot_have_other_files_removed(good, invoke, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    assert invoke(*good, "-o", tmp_path / "o.onnx").code == 0
    manifest = tmp_path / "o.onnx.manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "o.onnx"', '"name": "precious.txt"'))
    assert invoke(*good, "-o", tmp_path / "o.onnx").code == 0
    assert (tmp_path / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["export", "validate"])
def test_a_source_that_changes_while_it_is_read_is_exit_5(
    command, good, invoke, nets, checkpoint, tmp_path
):
    source = tmp_path / "net.pt"
    source.write_bytes(checkpoint.read_bytes())
    (tmp_path / "touches.py").write_text(
        f"import os, runpy\nmake_net = runpy.run_path({str(nets)!r})['SmallConvNet']\n"
        f"def make():\n    os.utime({str(source)!r}, (1, 1))\n    return make_net()\n"
    )
    words = ("export", source)
    if command == "validate":
        assert invoke(*good, "-o", tmp_path / "good.onnx").code == 0
        words = ("validate", tmp_path / "good.onnx", "--against", source)
    done = invoke(*words, "--model", f"{tmp_path}/touches.py:make", "-i", "x=2x3x24x24", "-q")
    assert done.code == 5
    assert "changed while" in done.stderr
    assert not (tmp_path / "net.onnx").exists()


def test_unproven_is_exit_6_when_proof_is_required_and_0_when_not(invoke, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import torch\nclass Noisy(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.linear = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.linear(x) + torch.randn_like(x)\n"
    )
    loaded = runpy.run_path(str(tmp_path / "noisy.py"))
    torch.save(loaded["Noisy"]().state_dict(), tmp_path / "noisy.pt")
    arguments = ("export", tmp_path / "noisy.pt", "--model", f"{tmp_path}/noisy.py:Noisy")
    more = ("-i", "1x4", "-q", "-o", tmp_path / "noisy.onnx")
    assert invoke(*arguments, *more, "--require", "executed").code == 6
    assert not (tmp_path / "noisy.onnx").exists()
    done = invoke(*arguments, *more)
    assert done.code == 0
    assert "UNVERIFIED" in done.stdout


def test_an_axis_of_size_zero_is_exit_2(good, invoke, tmp_path):
    arguments = [a if a != "x=2x3x24x24" else "x=0x3x24x24" for a in good]
    assert invoke(*arguments, "-o", tmp_path / "net.onnx").code == 2


@pytest.mark.parametrize("name", ["a" * 300 + ".onnx", "loop/net.onnx"])
def test_a_path_that_the_system_refuses_is_no_bug_of_ours(name, good, invoke, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert invoke(*good, "-o", tmp_path / name).code in (5, 7)


def test_a_terminated_export_leaves_nothing(good, tmp_path, nets):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\ndef make():\n    print('building', flush=True)\n    time.sleep(60)\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    arguments = [a if a != good[3] else f"{slow}:make" for a in good]
    running = subprocess.Popen(
        [sys.executable, "-m", "isomorph", *arguments, "-o", str(out / "net.onnx")],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "building\n"
    running.terminate()
    assert running.wait(timeout=60) == 130
    assert names(out) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_destination_is_exit_7(good, invoke, tmp_path):
    tmp_path.chmod(0o500)
    assert invoke(*good, "-o", tmp_path / "net.onnx").code == 7


def test_ctrl_c_in_the_middle_is_exit_130_and_leaves_nothing(good, tmp_path, nets):
    """The interrupt comes while the module is built, when the staging folder already stands."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        f"import time, runpy\nSmallConvNet = runpy.run_path({str(nets)!r})"
        "['SmallConvNet']\ndef make():\n    print('building', flush=True)\n"
        "    time.sleep(60)\n    return SmallConvNet()\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    (out / "net.onnx").write_bytes(b"the old artifact")
    arguments = [a if a != good[3] else f"{slow}:make" for a in good]
    process = subprocess.Popen(
        [sys.executable, "-m", "isomorph", *arguments, "-o", str(out / "net.onnx")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"
    assert len(names(out)) == 2
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert names(out) == ["net.onnx"]
    assert (out / "net.onnx").read_bytes() == b"the old artifact"


def test_a_failed_parity_moves_the_artifact_aside_and_keeps_the_old_one(
    good, invoke, tmp_path, monkeypatch
):
    assert invoke(*good, "-o", tmp_path / "net.onnx").code == 0
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    from isomorph.targets.onnx.session import OnnxSession

    run = OnnxSession.run
    monkeypatch.setattr(
        OnnxSession, "run", lambda self, i: {k: v * 1.001 for k, v in run(self, i).items()}
    )
    done = invoke(*good, "-o", tmp_path / "net.onnx")
    assert done.code == 3, done.stderr
    assert "output_0" in done.stderr
    rejected = tmp_path / "net.onnx.rejected"
    assert names(rejected) == [
        *("net.onnx", "net.onnx.manifest.json", "net.onnx.report.json"),
        *("net.onnx.repro.npz", "net.onnx.repro.py"),
    ]
    assert json.loads((rejected / "net.onnx.manifest.json").read_text())["verdict"] == "fail"
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content


def test_an_output_name_that_is_no_text_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="UTF-8"):
        isomorph.export(
            torch.nn.Linear(2, 2),
            "onnx",
            args=(torch.randn(1, 2),),
            output=tmp_path / "bad\udcff.onnx",
        )
