"""The documents that CI systems read are valid, complete and harmless."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from isomorph.errors import DestinationError, InputFileError, UsageError
from isomorph.validation.report.document import (
    KINDS,
    demand_writable,
    read_document,
    schema,
    write,
)
from lxml import etree
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema


def test_the_document_fits_its_published_schema(document):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema())


def test_the_schema_refuses_what_is_missing_or_unknown(document):
    for change in ({"reports": [{**document["reports"][0], "surprise": 1}]}, {"schema": 3}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, **change}, schema())


def test_figures_by_kind_of_input(document):
    bad, good, _ = document["reports"]
    kinds = {k["kind"]: k for k in good["outputs"][0]["kinds"]}
    assert {"normal", "zeros", "large", "tiny", "sizes"} <= kinds.keys()
    assert kinds["normal"]["verdict"] == "pass"
    assert 0 < kinds["normal"]["rms_ratio"] <= 4
    failed = {k["kind"]: k for k in bad["outputs"][0]["kinds"]}["normal"]
    assert failed["verdict"] == "fail"
    assert failed["peak_ratio"] > 1000


def test_the_histogram_counts_each_element_of_the_usual_cases_once(document):
    bad, good, _ = document["reports"]
    usual = [c for c in good["cases"] if c["kind"] not in ("zeros", "large", "tiny")]
    assert sum(good["outputs"][0]["histogram"]) % 5 == 0
    assert sum(good["outputs"][0]["histogram"]) >= 5 * len(usual)
    assert good["outputs"][1]["histogram"] == []
    centre = [sum(i * n for i, n in enumerate(r["outputs"][0]["histogram"])) for r in (bad, good)]
    total = [sum(r["outputs"][0]["histogram"]) for r in (bad, good)]
    assert centre[0] / total[0] > centre[1] / total[1] + 2


def test_junit_fits_the_structure_that_ci_systems_read(document):
    text = KINDS["junit"](document)
    tree = etree.fromstring(text.encode())
    etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd"))).assertValid(tree)
    suites = tree.findall("testsuite")
    assert [s.get("name") for s in suites] == [
        "Scaled.onnx.cpu",
        "Scaled.onnx.cpu",
        "odd? name.coreml.cpu",
    ]
    failed = suites[0].find("testcase[@name='normal']/failure")
    assert "noise floors off" in failed.get("message")
    assert "tanh" in failed.text
    assert suites[1].get("failures") == "0"
    assert suites[2].find("testcase/skipped") is not None
    assert int(tree.get("tests")) == len(tree.findall(".//testcase"))


def test_sarif_points_at_the_line_that_is_computed_wrongly(document):
    log = json.loads(KINDS["sarif"](document))
    # Classes generated from the standard's own schema; they allow no other keys.
    StaticAnalysisResultsFormatSarifVersion210JsonSchema.model_validate(log)
    results = log["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "warning"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("conftest.py")
    line = int(place["region"]["startLine"])
    assert (
        "torch.tanh" in Path(__file__).with_name("conftest.py").read_text().splitlines()[line - 1]
    )
    assert not place["artifactLocation"]["uri"].startswith("/")


def test_html_escapes_what_comes_from_outside(document):
    page = KINDS["html"](document)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "scores&lt;b&gt;" in page or "scores_b" in page or "scores" in page


def test_html_shows_what_the_cases_of_a_kind_give_together(document):
    changed = copy.deepcopy(document)
    kind = changed["reports"][1]["outputs"][0]["kinds"][0]
    kind["pooled"] = {"rms": 1.23, "shift": 0.45, "gain": 0.67, "cases": 3}
    assert "1.23, 0.45, 0.67" in KINDS["html"](changed)
    assert "1.23, 0.45, 0.67" not in KINDS["html"](document)


def test_html_shows_the_failing_line(document):
    page = KINDS["html"](document)
    assert "aten.tanh.default" in page
    assert "torch.tanh(self.act(self.fc(x)))" in page


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_reports_is_written_too(kind, document):
    assert KINDS[kind]({**document, "reports": []})


def test_an_old_file_is_replaced_whole_or_not_at_all(tmp_path, document, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text("old")
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError(28, ""))
    )
    with pytest.raises(DestinationError, match="disk is full"):
        write(document, "json", path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "old"


def test_unwritable_paths_are_found_before_the_work(tmp_path):
    with pytest.raises(DestinationError, match="folder does not exist"):
        demand_writable(tmp_path / "no" / "report.html")
    with pytest.raises(DestinationError, match="directory"):
        demand_writable(tmp_path)
    with pytest.raises(UsageError, match="unknown"):
        write({}, "pdf", tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"reports": [3]}', '{"reports": [{"schema": 2}]}']
)
def test_what_is_no_report_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match="no report"):
        read_document(path)
    with pytest.raises(InputFileError, match="does not exist"):
        read_document(tmp_path / "y.json")


def test_a_newer_schema_is_refused_by_number(tmp_path, document):
    path = tmp_path / "x.json"
    reports = [{**document["reports"][0], "schema": 9}]
    path.write_text(json.dumps({**document, "reports": reports}))
    with pytest.raises(InputFileError, match="schema 9"):
        read_document(path)


def test_a_document_from_before_errors_is_read(tmp_path, document):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({k: v for k, v in document.items() if k != "errors"}))
    assert read_document(path)["errors"] == []
    for kind in KINDS:
        assert KINDS[kind]({k: v for k, v in document.items() if k != "errors"})
    path.write_text(json.dumps({**document, "errors": [{"model": 3}]}))
    with pytest.raises(InputFileError, match="no report"):
        read_document(path)


def test_junit_is_never_green_for_a_report_that_fails(document):
    """As where the captured program is wrong, or a limit of the project's own is exceeded."""
    changed = {**document, "reports": [{**document["reports"][1], "verdict": "fail"}]}
    (suite,) = etree.fromstring(KINDS["junit"](changed).encode()).findall("testsuite")
    assert suite.get("failures") == "1"
    assert suite.find("testcase[@name='parity']/failure") is not None
