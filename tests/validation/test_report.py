"""The report: its JSON, and its text at 80 columns off a terminal."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
import torch
from isomorph.errors import MissingRequirementError
from isomorph.targets.base import Evidence
from isomorph.validation import parity
from isomorph.validation.report import Report
from isomorph.validation.report.model import OutputReport
from isomorph.validation.report.terminal import render
from rich.console import Console
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.body(x)
        return {"scores": scores, "label": scores.argmax(-1)}


@pytest.fixture(scope="module")
def trial(trial_of):
    torch.manual_seed(0)
    return trial_of(Net(), torch.randn(2, 8), dynamic=["x.0=batch:1..3"])


def text_of(report: Report, **options) -> str:
    stream = io.StringIO()
    render(report, Console(file=stream, width=80, **options))
    return stream.getvalue()


def test_json_is_plain_and_complete(trial):
    document = json.loads(json.dumps(trial.judge().to_json(), allow_nan=False))
    assert document["schema"] == 2
    assert document["verdict"] == "pass"
    assert document["evidence"]["kind"] == "executed"
    pooled = {"rms": 3.5, "shift": 4, "gain": 4}
    assert document["limits"] == {"peak": 6, "rms": 4, "pooled": pooled}
    scores, label = document["outputs"]
    assert scores["shape"] == ["batch", 6]
    assert 0 < scores["rms_ratio"] <= 4
    assert scores["floor"]["peak"] > 0
    assert label["peak_ratio"] is None
    assert {case["name"] for case in document["cases"]} >= {"normal-0", "zeros", "batch=1"}
    assert document["capture"]["passed"] is True


def test_json_has_no_number_that_json_lacks():
    output = OutputReport("y", "float32", (1,), "fail", "", math.inf, math.nan)
    document = output.to_json()
    assert (document["peak_ratio"], document["rms_ratio"]) == ("Infinity", "NaN")


def test_the_reason_names_the_worst_output_with_figures(trial):
    def spoil(outputs):
        return outputs | {"scores": outputs["scores"] * np.float32(1.01)}

    report = trial.judge(spoil=spoil)
    assert report.reason.startswith("scores: ")
    assert "noise floors off at its worst element (limit 6)" in report.reason
    assert "on case" in report.reason


def test_text_fits_80_columns_and_carries_no_escape_codes(trial):
    text = text_of(trial.judge())
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "PASS" in text
    assert "scores" in text
    assert "float32[batchx6]" in text
    assert "peak<=6" in text
    assert "rms<=4" in text


def test_text_of_many_long_names_still_shows_every_figure(trial):
    name = "a_very_long_output_name_" * 4
    output = OutputReport(
        name, "float32", ("batch", 100, 200, 300), "fail", "", 1.5e9, 2.25, 0.5, 0.1,
        None, "channels_last (after the others)",
    )  # fmt: skip
    report = Report("fail", "because", trial.judge().evidence, outputs=(output,) * 3)
    text = text_of(report)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("1.5e+09") == 3
    assert text.count("2.25") == 3
    assert text.count("fail") >= 3


def test_text_colours_the_verdict_on_a_terminal(trial):
    assert "\x1b[1;32m" in text_of(trial.judge(), force_terminal=True, color_system="standard")


def test_failed_cases_and_notes_are_listed(trial):
    text = text_of(trial.judge(spoil=lambda o: o | {"label": o["label"] + 1}))
    assert "normal-0, normal-1, " in text
    assert "label: 2 of 2 elements differ" in " ".join(text.split())


def test_square_brackets_are_not_taken_for_markup():
    evidence = Evidence("executed", "[bold]", "1", "cpu")
    text = text_of(Report("fail", "shape is [1, 2], not [red]", evidence, notes=("[x]",)))
    assert "not [red]" in text
    assert "[x]" in text
    assert "[bold]" in text


def test_what_was_only_built_is_never_a_pass(trial):
    class Built:
        evidence = Evidence("built", "none", "0", "cpu")

        def run(self, inputs):
            raise AssertionError("nothing to run")

    report = parity.judge(trial.graph, trial.reference, Built())
    assert report.verdict == "unverified"
    assert [o.verdict for o in report.outputs] == ["unverified", "unverified"]


def test_a_machine_that_lacks_something_is_not_a_parity_failure(trial):
    def spoil(outputs):
        raise MissingRequirementError("no GPU")

    with pytest.raises(MissingRequirementError):
        trial.judge(spoil=spoil)


def test_the_text_says_how_the_runtime_computed():
    details = {"half operators": "all 5 computed in float32", "layers": {"f32": 3}, "threads": 2}
    evidence = Evidence("executed", "runtime", "1", "cpu", details)
    shown = " ".join(text_of(Report("pass", "equal", evidence)).split())
    assert "half operators all 5 computed in float32; layers 3 in f32" in shown
    assert "threads" not in shown
