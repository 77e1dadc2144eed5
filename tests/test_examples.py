"""The examples: trained as their READMEs say, and exported by the commands printed there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    return load_script(EXAMPLES / "digits" / "train.py")


@pytest.mark.parametrize("checkpoint", ["digits/digits.pt", "mlp/model.pt"])
def test_checkpoint_is_a_small_state_dict_that_loads_safely(checkpoint: str) -> None:
    path = EXAMPLES / checkpoint
    assert path.stat().st_size < 200_000
    state = torch.load(path, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())


def test_digits_accuracy_is_the_one_its_readme_states(digits: ModuleType) -> None:
    model = digits.DigitsNet()
    model.load_state_dict(torch.load(EXAMPLES / "digits" / "digits.pt", weights_only=True))
    _, _, images, labels = digits.load_split()

    correct = digits.count_correct(model, images, labels)

    readme = (EXAMPLES / "digits" / "README.md").read_text()
    assert f"({correct} of {len(labels)} held-out images)" in readme
    assert f"held-out accuracy {correct / len(labels):.2%} ({correct}/{len(labels)})" in readme


def test_digits_samples_are_held_out_images(digits: ModuleType) -> None:
    train_images, _, held_out, _ = digits.load_split()
    with np.load(EXAMPLES / "digits" / "samples.npz") as samples:
        assert samples.files == ["x"]
        images = samples["x"]
    assert images.dtype == np.float32
    np.testing.assert_array_equal(images, held_out[:64].numpy())
    trained_on = {image.tobytes() for image in train_images.numpy()}
    assert not any(image.tobytes() in trained_on for image in images)


def test_digits_script_trains_a_checkpoint_like_the_committed_one(tmp_path: Path) -> None:
    script = EXAMPLES / "digits" / "train.py"
    result = subprocess.run(
        [sys.executable, str(script), "--epochs", "3", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    found = re.search(r"held-out accuracy ([\d.]+)%", result.stdout)
    assert found is not None
    assert float(found[1]) > 90
    trained = torch.load(tmp_path / "digits.pt", weights_only=True)
    committed = torch.load(EXAMPLES / "digits" / "digits.pt", weights_only=True)
    assert {name: value.shape for name, value in trained.items()} == {
        name: value.shape for name, value in committed.items()
    }


def test_mlp_script_run_as_it_stands_saves_what_is_committed(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "mlp" / "train.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    last = result.stdout.splitlines()[-1]
    accuracy = float(last.rpartition(" ")[2].rstrip("%"))
    stated = re.search(
        r"epoch 30: test accuracy ([\d.]+)%", (EXAMPLES / "mlp/README.md").read_text()
    )
    assert stated is not None
    # Another processor rounds otherwise; a few images of 450 may tip over.
    assert abs(accuracy - float(stated[1])) < 1.5
    trained = torch.load(tmp_path / "model.pt", weights_only=True)
    committed = torch.load(EXAMPLES / "mlp" / "model.pt", weights_only=True)
    assert {name: value.shape for name, value in trained.items()} == {
        name: value.shape for name, value in committed.items()
    }


@pytest.mark.parametrize("example", ["digits", "mlp"])
def test_export_command_in_readme_works_as_printed(example: str, tmp_path: Path) -> None:
    readme = (EXAMPLES / example / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^ {4}isomorph (export .*)$", readme, re.MULTILINE)
    shutil.copytree(EXAMPLES, tmp_path / "examples")

    result = subprocess.run(
        [sys.executable, "-m", "isomorph", *shlex.split(command), "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    (artifact,) = json.loads(result.stdout)["artifacts"]
    assert artifact["verdict"] == "pass"
    assert artifact["evidence"] == "executed"
    assert (tmp_path / artifact["path"]).is_file()
    assert not (tmp_path / "model.pt").exists(), "exporting ran the training script"
