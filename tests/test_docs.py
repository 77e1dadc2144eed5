"""Every command and every Python example that the documents show works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKS = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A folder in which the documents' relative paths work and artifacts may be written."""
    folder = tmp_path_factory.mktemp("checkout")
    for source in (ROOT / "examples").glob("*/*"):
        if source.is_file():
            target = folder / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return folder


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)


def test_the_console_commands_of_the_documents_run_in_order(checkout):
    commands = [
        line.removeprefix("$ ")
        for document in DOCUMENTS
        for block in blocks(document, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) >= 6
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "isomorph", command
        done = subprocess.run(
            [sys.executable, "-m", "isomorph", *arguments],
            **{"cwd": checkout, "capture_output": True, "text": True},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_python_examples_of_the_documents_run(checkout):
    for document in DOCUMENTS:
        for block in blocks(document, "python"):
            done = subprocess.run(
                [sys.executable, "-c", block],
                **{"cwd": checkout, "capture_output": True, "text": True},
            )
            assert done.returncode == 0, f"{document.name}\n{block}\n{done.stderr}"


def test_the_configuration_of_the_documents_is_read(checkout):
    from isomorph.validation.project import read_configuration

    (text,) = blocks(ROOT / "docs" / "ci.md", "toml")
    path = checkout / "isomorph-example.toml"
    path.write_text(text)
    assert [model.formats for model in read_configuration(path).models] == [
        ("onnx", "openvino"),
        ("onnx",),
    ]


def test_the_workflow_of_the_documents_names_inputs_of_the_action():
    (text,) = blocks(ROOT / "docs" / "ci.md", "yaml")
    (step,) = [
        step
        for step in yaml.safe_load(text)["jobs"]["parity"]["steps"]
        if "isomorph" in step["uses"]
    ]
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert step["with"].keys() <= action["inputs"].keys()


@pytest.mark.parametrize("document", LINKS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), link


def test_make_targets_that_the_documents_name_exist():
    named = set(re.findall(r"\bmake ([a-z-]+)\b(?=[ `\n])", (ROOT / "README.md").read_text()))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"demo", "test"} <= named & targets


def test_the_readme_shows_what_the_demo_prints(checkout):
    """The transcript is of `make demo`; all but times, versions and figures must be as printed."""
    readme = (ROOT / "README.md").read_text()
    (shown,) = re.findall(r"^```text\n(.*?)^```", readme, re.M | re.S)
    makefile = (ROOT / "Makefile").read_text()
    (command,) = re.findall(r"isomorph (export examples/digits.*?)\n\n", makefile, re.S)
    arguments = shlex.split(command.replace("$(BUILD)", ".build").replace("\\\n", " "))
    done = subprocess.run(
        [sys.executable, "-m", "isomorph", *arguments],
        **{"cwd": checkout, "capture_output": True, "text": True},
    )
    assert done.returncode == 0, done.stderr
    assert _words(done.stderr + done.stdout) == _words(shown)


def _words(text: str) -> list[str]:
    """The words of a transcript without numbers, which differ by machine and version."""
    return [word for word in text.split() if not re.search(r"\d", word) or word == "output_0"]
