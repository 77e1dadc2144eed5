"""Faults that no case shows alone fail over the cases together; rounding passes, biased too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import expected, parity
from isomorph.validation.compare import errors_of, signal_of
from isomorph.validation.expected import Expected, Reference
from isomorph.validation.judging import Finding, judge_runs
from isomorph.validation.pooled import FEWEST_ELEMENTS
from isomorph.validation.verdict import FULL_RULE, Noise, PooledLimits
from torch import nn

Array = np.ndarray
LIMITS: PooledLimits = FULL_RULE.pooled or PooledLimits(0, 0, 0)

# Rounding noise as large as this share of the output.
NOISE = 1e-6


@dataclass(frozen=True)
class Tried:
    name: str
    kind: str
    description: str = "made up"


@dataclass(frozen=True)
class Output:
    name: str = "y"
    dtype: str = "float32"


class Made:
    """Truth of three cases, three lanes of noise each, and an artifact with noise of its own."""

    def __init__(self, size: int = 1600, kind: str = "normal", cases: int = 3) -> None:
        draw = np.random.default_rng(0)
        self.cases = [Tried(f"{kind}-{i}", kind) for i in range(cases)]
        self.truth = {case.name: draw.standard_normal(size) for case in self.cases}
        self.noise = {case.name: NOISE * draw.standard_normal(size) for case in self.cases}
        known: dict[str, Mapping[str, Expected]] = {}
        for name, truth in self.truth.items():
            lanes = [truth + NOISE * draw.standard_normal(size) for _ in range(3)]
            errors = tuple(errors_of(lane, truth) for lane in lanes)
            noise = Noise(signal_of(truth), errors)
            known[name] = {"y": Expected("float32", truth.shape, truth, noise)}
        self.reference = Reference(cases=(), expected=known)

    def judge(self, fault: Callable[[Array], Array], noise: float = 1.0) -> list[Finding]:
        def run(case: Tried, _: str) -> tuple[Any, None]:
            truth = self.truth[case.name]
            error = noise * self.noise[case.name] + NOISE * fault(truth)
            return {"y": (truth + error).astype(np.float32)}, None

        return judge_runs([Output()], self.reference, self.cases, run)


def nothing(truth: Array) -> Array:
    return np.zeros_like(truth)


def noisier(truth: Array) -> Array:
    """Rounding to a coarser grid: no element stands out, and no sign prevails."""
    return np.random.default_rng(int(1e6 * abs(truth[0]))).standard_normal(truth.shape) * 3.6


def offset(truth: Array) -> Array:
    return np.full_like(truth, 1.3)


def gain(truth: Array) -> Array:
    return 1.3 * truth


FAULTS = [
    ("rms", noisier, "too large on average"),
    ("shift", offset, "have one sign"),
    ("gain", gain, "grow and fall with the values"),
]


@pytest.mark.parametrize(("figure", "fault", "words"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_small_systematic_fault_fails(figure, fault, words):
    findings = Made().judge(fault)
    failed = [f for f in findings if f.verdict == "fail"]
    assert len(failed) == 1, "the worst case carries the verdict"
    assert words in failed[0].reason
    assert "over the 3 cases of this kind together" in failed[0].reason
    assert all(f.ratios is not None and f.ratios.within for f in findings), "no case shows it alone"


@pytest.mark.parametrize(("figure", "fault", "words"), FAULTS, ids=[f[0] for f in FAULTS])
def test_only_its_own_figure_sees_it(figure, fault, words, monkeypatch):
    blind = replace(LIMITS, **{figure: float("inf")})
    monkeypatch.setattr(expected, "FULL_RULE", replace(FULL_RULE, pooled=blind))
    assert {f.verdict for f in Made().judge(fault)} == {"pass"}


def test_noise_as_large_as_a_lanes_passes():
    findings = Made().judge(nothing)
    assert {f.verdict for f in findings} == {"pass"}
    pooled = findings[0].pooled
    assert pooled is not None
    assert pooled.cases == 3
    assert 0.8 < pooled.rms < 1.2
    assert max(pooled.shift, pooled.gain) < 0.5


@pytest.mark.parametrize("kind", ["zeros", "large", "tiny", "ones"])
def test_values_that_nobody_feeds_are_judged_case_by_case(kind):
    findings = Made(kind=kind).judge(offset)
    assert {f.verdict for f in findings} == {"pass"}
    assert findings[0].pooled is None


def test_few_elements_are_judged_case_by_case():
    few = (FEWEST_ELEMENTS - 1) // 3
    assert Made(few).judge(nothing)[0].pooled is None
    assert Made(few + 1).judge(nothing)[0].pooled is not None


def test_a_case_that_shows_noise_only_takes_no_part():
    made = Made()
    case = made.cases[0].name
    entry = made.reference.expected[case]["y"]
    lanes = tuple(replace(lane, rms=entry.noise.signal.rms) for lane in entry.noise.lanes)
    noisy = replace(entry, noise=replace(entry.noise, lanes=lanes))
    shown = {**made.reference.expected, case: {"y": noisy}}
    made.reference = replace(made.reference, expected=shown)
    pooled = made.judge(offset)[1].pooled
    assert pooled is not None
    assert pooled.cases == 2


@pytest.mark.parametrize("change", [{"dtype": "float16"}, {"tolerance_reason": "a kernel"}])
def test_without_a_float32_floor_nothing_is_pooled(change):
    made = Made()
    made.reference = replace(made.reference, **change)
    assert made.judge(nothing)[0].pooled is None


class Tables(nn.Module):
    """Functions that runtimes compute by polynomials, each with a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.body(x)
        return {
            "erf": torch.erf(x),
            "gelu": nn.functional.gelu(nn.functional.gelu(y) * 3),
            "tanh": torch.tanh(torch.tanh(y) * 2),
            "exp": torch.exp(y),
            "log": torch.log(x.abs() + 0.1),
            "rsqrt": torch.rsqrt(y * y + 0.1),
            "norm": nn.functional.layer_norm(y, (16,)),
            "softmax": y.softmax(-1),
        }


@pytest.mark.parametrize("optimized", [True, False])
def test_a_runtime_with_biased_functions_passes(trial_of, tmp_path, optimized):
    torch.manual_seed(0)
    trial = trial_of(Tables(), torch.randn(32, 16))
    artifact = OnnxTarget().convert(trial.graph, OnnxOptions(), tmp_path, "tables")
    with OnnxTarget().open(artifact.path, optimized=optimized) as session:
        report = parity.judge(trial.graph, trial.reference, session)
    figures = {o.name: o.kinds[0].pooled for o in report.outputs}
    print(figures)
    assert report.verdict == "pass", report.reason
    assert all(pooled is not None and pooled.cases == 3 for pooled in figures.values())


def test_the_report_has_the_figures(trial_of):
    trial = trial_of(nn.Linear(8, 32), torch.randn(4, 8))

    def spoil(outputs: dict[str, Array]) -> dict[str, Array]:
        value = outputs["output_0"]
        # Three spacings of the output's size: far below what a case by itself shows.
        outputs["output_0"] = value + np.float32(3.0 * 2**-23 * np.sqrt(np.mean(value**2)))
        return outputs

    report = trial.judge(spoil=spoil)
    (output,) = report.outputs
    kind = next(k for k in output.kinds if k.kind == "normal")
    assert report.verdict == "fail"
    assert "over the 3 cases of this kind together, its errors have one sign" in report.reason
    assert kind.verdict == "fail"
    assert kind.pooled is not None
    assert kind.pooled.shift > 4
    assert kind.to_json()["pooled"]["cases"] == 3
