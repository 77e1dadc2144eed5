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
