"""What moved between two reports."""

from __future__ import annotations

import copy
import json

import pytest
from isomorph.validation.report.difference import compare, lines


@pytest.fixture
def good(document):
    return {**document, "reports": [copy.deepcopy(document["reports"][1])]}


def test_the_same_report_has_not_moved(good):
    found = compare(good, good)
    assert not found.changes
    assert list(lines(found)) == [f"nothing moved ({found.compared} compared)"]


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        ("pass", "fail", True),
        ("pass", "unverified", True),
        ("unverified", "fail", True),
        ("fail", "pass", False),
        ("unverified", "pass", False),
        ("fail", "unverified", False),
    ],
)
def test_verdicts_that_move(good, old, new, worse):
    before, after = copy.deepcopy(good), copy.deepcopy(good)
    before["reports"][0]["verdict"], after["reports"][0]["verdict"] = old, new
    found = compare(before, after)
    assert bool(found.worse) is worse
    assert f"{old} -> {new}" in "\n".join(lines(found))


def test_what_is_no_longer_checked_is_worse(good):
    assert compare(good, {**good, "reports": []}).worse
    assert not compare({**good, "reports": []}, good).worse


def test_a_figure_that_moved_is_told_and_no_reason_to_fail(good):
    after = copy.deepcopy(good)
    after["reports"][0]["outputs"][0]["peak_ratio"] *= 3
    found = compare(good, after)
    assert len(found.changes) == 1
    assert not found.worse


def test_the_command(good, tmp_path, invoke):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(good))
    worse = copy.deepcopy(good)
    worse["reports"][0]["outputs"][0].update(verdict="fail", peak_ratio="Infinity")
    worse["reports"][0]["verdict"] = "fail"
    new.write_text(json.dumps(worse))
    assert invoke("diff", old, old).code == 0
    done = invoke("diff", old, new, "--json")
    assert done.code == 3
    assert json.loads(done.stdout)["worse"] == 2
    assert "worse" in invoke("diff", old, new).stdout
    assert invoke("diff", old, tmp_path / "none.json").code == 5


@pytest.fixture
def error():
    """As of an export of the model of the reports."""
    return {
        "model": "Scaled",
        "format": "onnx",
        "message": "no",
        "hint": None,
        "exit_code": 4,
        "source": "",
    }


@pytest.mark.parametrize(
    ("old", "worse"), [("pass", True), ("unverified", True), ("fail", False), (None, True)]
)
def test_what_can_no_longer_be_made_is_worse(good, error, old, worse):
    before = copy.deepcopy(good) if old else {**good, "reports": []}
    if old:
        before["reports"][0]["verdict"] = old
    found = compare(before, {**good, "reports": [], "errors": [error]})
    assert bool(found.worse) is worse
    (change,) = found.changes
    assert (change.old_verdict, change.new_verdict) == (old, "error")


def test_what_can_be_made_again_is_better_and_what_never_could_has_not_moved(good, error):
    failed = {**good, "reports": [], "errors": [error]}
    found = compare(failed, good)
    assert [(c.old_verdict, c.new_verdict) for c in found.changes] == [("error", "pass")]
    assert not found.worse
    assert not compare(failed, failed).changes


def test_too_little_evidence_is_worse_beside_its_report(good, error):
    found = compare(good, {**good, "errors": [error]})
    assert [(c.name, c.new_verdict) for c in found.worse] == [("Scaled onnx", "error")]
