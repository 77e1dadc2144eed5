"""`isomorph check` and the configuration that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.validation.project import find_configuration, read_configuration
from torch import nn

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 3)
    def forward(self, x):
        return torch.tanh(self.fc(x))
"""

ENTRY = """
[[models]]
name = "net"
source = "net.pt"
model = "net.py:Net"
inputs = ["x=2x6"]
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project's folder with one model, and the working folder."""
    (tmp_path / "net.py").write_text(NET)
    fc = nn.Linear(6, 3)
    torch.save({f"fc.{k}": v for k, v in fc.state_dict().items()}, tmp_path / "net.pt")
    (tmp_path / "isomorph.toml").write_text(ENTRY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_arguments_all_is_checked(project, invoke, monkeypatch):
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    done = invoke("check", "-q")
    assert done.code == 0, done.stderr
    assert "net" in done.stdout
    assert "pass" in done.stdout
    assert sorted(p.name for p in project.iterdir()) == ["a", "isomorph.toml", "net.pt", "net.py"]


def test_the_projects_own_configuration():
    found = read_configuration(Path(__file__).parents[1] / "pyproject.toml")
    assert [model.name for model in found.models] == ["digits", "mlp"]


def test_json_and_reports(project, invoke, tmp_path):
    done = invoke("check", "-q", "--json", "--report", f"junit:{tmp_path}/j.xml")
    document = json.loads(done.stdout)
    assert document["checks"] == [
        {"model": "net", "format": "onnx", "verdicts": ["pass"], "error": None}
    ]
    assert document["reports"][0]["model"] == "net"
    assert 'name="net.onnx.cpu"' in (tmp_path / "j.xml").read_text()


def test_one_model_that_cannot_be_made_does_not_stop_the_others(project, invoke):
    bad = ENTRY.replace('"net"', '"broken"', 1).replace("x=2x6", "x=2x7")
    (project / "isomorph.toml").write_text(bad + ENTRY)
    done = invoke("check", "-q", "--json")
    assert done.code == 2
    assert [c["verdicts"] for c in json.loads(done.stdout)["checks"]] == [[], ["pass"]]


def test_a_project_can_ask_for_less_error_and_not_for_more(project, invoke):
    (project / "isomorph.toml").write_text(ENTRY + "max_floors = { peak = 0.0001 }\n")
    done = invoke("check", "-q")
    assert done.code == 3
    assert "max_floors" in done.stdout
    (project / "isomorph.toml").write_text(ENTRY + "max_floors = { peak = 60 }\n")
    done = invoke("check", "-q")
    assert done.code == 2
    assert "can only be lower" in done.stderr


def test_artifacts_are_kept_where_asked(project, invoke, tmp_path):
    assert invoke("check", "-q", "--keep", tmp_path / "kept").code == 0
    assert (tmp_path / "kept" / "net" / "net.onnx").is_file()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ENTRY + 'colour = "red"\n', "'colour' was unexpected"),
        (ENTRY.replace('"net.pt"', "3"), "models[0].source"),
        (ENTRY.replace('["x=2x6"]', '"x=2x6"'), "models[0].inputs"),
        (ENTRY.replace('"net.pt"', '"gone.pt"'), "gone.pt does not exist"),
        (ENTRY.replace('"net.py:Net"', '"gone.py:Net"'), "gone.py does not exist"),
        (ENTRY + ENTRY, "two models called net"),
        ("models = []\n", "models"),
        ("", "'models' is a required property"),
        ('precision = "int3"\n' + ENTRY, "precision"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_told(project, text, told):
    (project / "isomorph.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_configuration(project / "isomorph.toml")
    assert told in caught.value.message


def test_no_toml_and_no_configuration(project, tmp_path_factory):
    (project / "isomorph.toml").write_text("[[")
    with pytest.raises(InputFileError, match="no TOML"):
        read_configuration(project / "isomorph.toml")
    with pytest.raises(UsageError, match=r"tool\.isomorph"):
        find_configuration(tmp_path_factory.mktemp("empty"))


def test_an_unknown_model_is_told_before_any_work(project, invoke):
    done = invoke("check", "nets", "-q")
    assert done.code == 2
    assert "it has net" in done.stderr
    done = invoke("check", "-q", "--report", f"html:{project}/no/r.html")
    assert done.code == 7


KINDS = ("html", "junit", "sarif", "json")


def all_reports(folder: Path) -> list[str]:
    return [word for kind in KINDS for word in ("--report", f"{kind}:{folder}/r.{kind}")]


def assert_none_is_green(folder: Path, *told: str, code: int) -> dict:
    """Every form tells the error; gives the JSON document."""
    from isomorph.validation.report.document import schema
    from lxml import etree

    page = (folder / "r.html").read_text()
    assert "<title>Parity: error</title>" in page
    tree = etree.parse(folder / "r.junit").getroot()
    assert (tree.get("failures"), tree.get("errors")) == ("0", "1")
    (error,) = tree.findall("testsuite/testcase/error")
    results = json.loads((folder / "r.sarif").read_text())["runs"][0]["results"]
    (result,) = [r for r in results if r["level"] == "error"]
    document = json.loads((folder / "r.json").read_text())
    jsonschema.validate(document, schema())
    (entry,) = document["errors"]
    assert entry["exit_code"] == code
    for text in told:
        for form in (page, error.get("message"), result["message"]["text"], entry["message"]):
            assert text in form
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == entry["source"]
    return document


def test_what_could_not_be_made_is_in_every_report(project, invoke):
    bad = ENTRY.replace('"net"', '"broken"', 1).replace("x=2x6", "x=2x7")
    (project / "isomorph.toml").write_text(bad + ENTRY)
    done = invoke("check", "-q", "--json", *all_reports(project))
    assert done.code == 2
    document = assert_none_is_green(project, "2x7", code=2)
    assert document["errors"][0]["model"] == "broken"
    assert document["errors"][0]["source"] == "isomorph.toml"
    assert [report["verdict"] for report in document["reports"]] == ["pass"]
    assert json.loads(done.stdout)["errors"] == document["errors"]


def test_a_configuration_that_is_not_right_is_in_every_report(project, invoke):
    (project / "isomorph.toml").write_text(ENTRY + 'colour = "red"\n')
    done = invoke("check", "--config", "isomorph.toml", "-q", *all_reports(project))
    assert done.code == 2
    assert_none_is_green(project, "colour", code=2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("-i", "x=2x7"), 2),
        (("-i", "x=2x6", "--set", "opset=nine"), 2),
        (("-i", "x=2x6", "-f", "onnx", "-f", "absent"), 2),
    ],
)
def test_an_export_that_comes_to_nothing_writes_its_reports(project, invoke, words, code):
    done = invoke("export", "net.pt", "--model", "net.py:Net", *words, "-q", *all_reports(project))
    assert done.code == code
    document = json.loads((project / "r.json").read_text())
    assert {entry["exit_code"] for entry in document["errors"]} == {code}
    if len(document["errors"]) == 1:
        assert_none_is_green(project, code=code)
        assert document["errors"][0]["model"] == "net.pt"


def test_one_format_of_an_export_that_fails_is_in_the_reports(project, invoke, monkeypatch):
    from isomorph.errors import MissingRequirementError
    from isomorph.targets import registry

    target = registry.get("openvino")

    def refuse(self, *args, **kwargs):
        raise MissingRequirementError("openvino is not installed", hint="pip install openvino")

    monkeypatch.setattr(type(target), "convert", refuse)
    words = ("-i", "x=2x6", "-f", "onnx", "-f", "openvino", "-o", project / "out")
    done = invoke("export", "net.pt", "--model", "net.py:Net", *words, "-q", *all_reports(project))
    assert done.code == 6
    document = assert_none_is_green(project, "openvino is not installed", code=6)
    assert [report["format"] for report in document["reports"]] == ["onnx"]


def test_validate_of_what_cannot_be_read_writes_its_reports(project, invoke):
    words = ("--against", "net.pt", "--model", "net.py:Net", "-i", "x=2x6", "-q")
    done = invoke("validate", "gone.onnx", *words, *all_reports(project))
    assert done.code == 5
    assert_none_is_green(project, "gone.onnx", code=5)
