"""Sessions that evaluate a file: every reading must pass, and what nobody knows is unverified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import UnverifiableError
from isomorph.targets.base import Evidence
from isomorph.validation import parity


class Evaluated:
    """Computes with the module; `spoiled` is a reading that is wrong, `unknown` one that stops."""

    evidence = Evidence("evaluated", "eager", "0", "cpu")
    readings = ("long sums", "short sums")

    def __init__(self, trial: Any, spoiled: str = "", unknown: str = "") -> None:
        self.inputs, self.outputs = trial.graph.inputs, trial.graph.outputs
        self._trial, self._spoiled, self._unknown = trial, spoiled, unknown
        self.runs: list[str] = []

    def run(self, inputs: Mapping[str, np.ndarray], reading: str) -> dict[str, np.ndarray]:
        self.runs.append(reading)
        if reading == self._unknown:
            raise UnverifiableError("nobody knows what topk (top) gives: ties", hint="use a Mac")
        tensors = {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}
        outputs = self._trial.graph.call.call(self._trial.module, tensors)
        factor = np.float32(1.01 if reading == self._spoiled else 1)
        return {name: value.detach().numpy() * factor for name, value in outputs.items()}


@pytest.fixture(scope="module")
def trial(trial_of: Any) -> Any:
    torch.manual_seed(0)
    return trial_of(torch.nn.Linear(6, 5), torch.randn(3, 6))


def test_each_case_is_run_in_every_reading(trial: Any) -> None:
    session = Evaluated(trial)
    report = parity.judge(trial.graph, trial.reference, session)
    assert report.verdict == "pass"
    assert session.runs.count("long sums") == session.runs.count("short sums") > len(trial.cases)


@pytest.mark.parametrize("reading", Evaluated.readings)
def test_one_wrong_reading_fails_and_is_named(trial: Any, reading: str) -> None:
    report = parity.judge(trial.graph, trial.reference, Evaluated(trial, spoiled=reading))
    assert report.verdict == "fail"
    assert reading in report.reason


@pytest.mark.parametrize("reading", Evaluated.readings)
def test_what_the_evaluator_does_not_know_is_unverified_never_pass(
    trial: Any, reading: str
) -> None:
    report = parity.judge(trial.graph, trial.reference, Evaluated(trial, unknown=reading))
    assert report.verdict == "unverified"
    assert "topk (top)" in report.reason


def test_a_wrong_reading_outweighs_an_unknown_one(trial: Any) -> None:
    session = Evaluated(trial, spoiled="long sums", unknown="short sums")
    assert parity.judge(trial.graph, trial.reference, session).verdict == "fail"
