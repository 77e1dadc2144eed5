"""The GitHub action and this project's workflow: valid, and their steps do what they say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())


@pytest.mark.parametrize(
    ("schema", "file"),
    [("github-actions", "action.yml"), ("github-workflows", ".github/workflows/ci.yml")],
)
def test_the_files_are_what_github_reads(schema, file):
    program = Path(sys.executable).with_name("check-jsonschema")
    done = subprocess.run(
        [program, "--builtin-schema", f"vendor.{schema}", ROOT / file],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path) -> Path:
    """A checkout with the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.fixture
def step(project):
    """Runs a step of the action with its inputs, as GitHub does: bash -e and pipefail."""

    def run(name: str, *, outputs: dict[str, str] | None = None, **inputs: str):
        (found,) = [s for s in ACTION["runs"]["steps"] if s.get("name") == name]
        known = {key: entry["default"] for key, entry in ACTION["inputs"].items()}
        assert inputs.keys() <= known.keys()
        known.update(python=sys.executable, **inputs)
        values = {f"inputs.{key}": value for key, value in known.items()}
        values |= {f"steps.parity.outputs.{k}": v for k, v in (outputs or {}).items()}
        environment = {
            key: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: values.get(m[1], ""), text)
            for key, text in found["env"].items()
        }
        assert "${{" not in found["run"], "an expression in a script lets its value run as code"
        environment |= {"GITHUB_OUTPUT": "out.txt", "GITHUB_STEP_SUMMARY": "summary.md"}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
            cwd=project,
            env={"PATH": "/usr/bin:/bin", "HOME": str(project), **environment},
            capture_output=True,
            text=True,
        )

    return run


def test_a_checkpoint_is_exported_and_reported(step, project):
    done = step(
        "Export and check",
        source="examples/mlp/model.pt",
        model="examples/mlp/train.py:MLP",
        formats="onnx",
        inputs="1x64\n",
        arguments="--seed-that-is-no-option\n",
    )
    assert done.returncode == 0
    assert (project / "out.txt").read_text() == "exit-code=2\n"
    assert "no-option" in (project / "summary.md").read_text()
    (project / "out.txt").unlink()
    done = step(
        "Export and check",
        source="examples/mlp/model.pt",
        model="examples/mlp/train.py:MLP",
        inputs="1x64\n",
        arguments="--set\nopset=20\n",
    )
    assert done.returncode == 0, done.stderr
    assert (project / "out.txt").read_text() == "exit-code=0\n"
    assert (project / "isomorph-artifacts" / "model.onnx").is_file()
    reports = project / "isomorph-reports"
    assert {p.name for p in reports.iterdir()} == {
        "parity.html",
        "parity.xml",
        "parity.sarif",
        "parity.report.json",
        "parity.txt",
    }
    document = json.loads((reports / "parity.report.json").read_text())
    assert document["reports"][0]["verdict"] == "pass"
    assert "PASS" in (project / "summary.md").read_text()


def test_a_mismatch_fails_the_job_after_the_reports_are_written(step, project):
    (project / "isomorph.toml").write_text(
        "[[models]]\n"
        'source = "examples/mlp/model.pt"\n'
        'name = "mlp"\n'
        'model = "examples/mlp/train.py:MLP"\n'
        'inputs = ["1x64"]\n'
        "max_floors = { peak = 0.0001 }\n"
    )
    done = step("Export and check")
    assert done.returncode == 0, done.stderr
    assert (project / "out.txt").read_text() == "exit-code=3\n"
    assert (project / "isomorph-reports" / "parity.sarif").is_file()
    assert step("Verdict", outputs={"exit-code": "3"}).returncode == 3
    assert step("Verdict", outputs={"exit-code": "0"}).returncode == 0
    assert step("Verdict").returncode == 1, "the step before it did not come so far"


def test_the_commands_of_the_workflow_run(project):
    """Those of other systems too; what only a Mac can execute is evaluated here."""
    commands = [
        shlex.split(entry["run"])
        for job in WORKFLOW["jobs"].values()
        for entry in job["steps"]
        if entry.get("run", "").startswith("python -m isomorph")
    ]
    assert len(commands) == 4
    for command in commands:
        if "coreml" in command and sys.platform != "darwin":
            command[command.index("executed")] = "evaluated"
        done = subprocess.run(
            [sys.executable, *command[1:]], cwd=project, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
