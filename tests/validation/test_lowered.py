"""The half-precision floor: sound graphs pass, wrongly lowered ones do not, whoever runs them."""

from __future__ import annotations

from dataclasses import replace

import isomorph
import numpy as np
import pytest
import torch
from isomorph.exporter import precision as lowering
from isomorph.exporter.precision import lower_precision
from isomorph.progress import Silent
from isomorph.targets.base import Evidence
from isomorph.validation import cases, parity, reference
from isomorph.validation.lowered import lowered_reference
from isomorph.validation.rounding import overflow_is_genuine
from isomorph.validation.verdict import HALF_RULE
from torch import nn


class Attention(nn.Module):
    """One head over x with a padding mask, a norm by hand and a head."""

    def __init__(self, scale=1.0, epsilon=1e-6, fill=-1e9):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.scale, self.epsilon, self.fill = scale, epsilon, fill

    def forward(self, x, keep):
        scores = self.query(x) @ self.key(x).transpose(1, 2) * self.scale
        weights = (scores + (~keep).float()[:, None] * self.fill).softmax(-1)
        mixed = weights @ self.value(x)
        centred = mixed - mixed.mean(-1, keepdim=True)
        return centred / ((centred * centred).mean(-1, keepdim=True) + self.epsilon).sqrt()


X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
KEEP = torch.ones(4, 6, dtype=torch.bool)


class GraphSession:
    """A runtime that computes a graph as torch does."""

    evidence = Evidence("executed", "graph", "0", "cpu")

    def __init__(self, graph, spoil=lambda outputs: outputs):
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._graph, self._spoil = graph, spoil

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, inputs):
        given = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        return self._spoil({n: v.numpy() for n, v in self._graph.run(given).items()})


@pytest.fixture
def known(capture_of):
    """The reference of a module in float32, with its graph and the rest of the capture."""

    def make(module, *args):
        captured = capture_of(module, *args)
        chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True)
        return captured.graph, reference.compute(captured.graph, module, chosen)

    return make


def verdict_of(found, lowered, spoil=lambda outputs: outputs):
    judged = lowered_reference(found, lowered, Silent())
    return parity.judge(lowered, judged, GraphSession(lowered, spoil))


def scaled_by(factor):
    return lambda outputs: {name: v * np.float32(factor) for name, v in outputs.items()}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_sound_half_graph_passes_its_own_rule(known, precision):
    graph, found = known(Attention(), X, KEEP)
    report = verdict_of(found, lower_precision(graph, precision))
    assert report.verdict == "pass", report.reason
    assert report.rule == HALF_RULE
    assert report.to_json()["limits"] == {"peak": 3.0, "rms": 2.0, "pooled": None}


def test_the_report_says_what_half_costs(known):
    graph, found = known(Attention(), X, KEEP)
    notes = verdict_of(found, lower_precision(graph, "fp16")).notes
    assert any(
        "float16 costs" in note and "noise floor is that of float16" in note for note in notes
    )


def test_truth_and_cases_are_those_of_the_users_model(known):
    graph, found = known(Attention(), X, KEEP)
    judged = lowered_reference(found, lower_precision(graph, "fp16"), Silent())
    assert judged.cases == found.cases
    for name, outputs in judged.expected.items():
        assert outputs["output_0"].truth is found.expected[name]["output_0"].truth


def test_bf16_noise_fails_a_float16_artifact(known):
    graph, found = known(Attention(), X, KEEP)
    judged = lowered_reference(found, lower_precision(graph, "fp16"), Silent())
    session = GraphSession(lower_precision(graph, "bf16"))
    assert parity.judge(graph, judged, session).verdict == "fail"


def test_a_fault_of_the_size_of_a_few_half_roundings_fails(known):
    graph, found = known(Attention(), X, KEEP)
    spoil = scaled_by(1 + 2**-6)
    assert verdict_of(found, lower_precision(graph, "fp16"), spoil).verdict == "fail"


# Wrong lowerings: artifact and floor come from the same graph, and still it must not pass.


def test_a_softmax_that_overflows_in_half_is_no_pass(known, monkeypatch):
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            raised = torch.exp(self.linear(x).clamp(-1, 1) * 20)
            return raised / raised.sum(-1, keepdim=True)

    graph, found = known(Weighted(), X)
    sound = verdict_of(found, lower_precision(graph, "fp16"))
    assert sound.verdict == "pass", sound.reason
    monkeypatch.setattr(lowering, "SENSITIVE", lowering.SENSITIVE - {"exp"})
    monkeypatch.setattr(lowering, "ELEMENTWISE", lowering.ELEMENTWISE | {"exp", "sum"})
    monkeypatch.setattr(lowering, "_divides_by_tensor", lambda node: False)
    monkeypatch.setattr(lowering, "_is_sensitive_to", lambda user, node: False)
    assert verdict_of(found, lower_precision(graph, "fp16")).verdict != "pass"


def test_a_sentinel_that_became_infinite_is_found(known, monkeypatch):
    keep = KEEP.clone()
    keep[1] = False
    graph, found = known(Attention(fill=torch.finfo(torch.float32).min), X, keep)
    sound = verdict_of(found, lower_precision(graph, "fp16"))
    assert sound.verdict == "pass", sound.reason
    monkeypatch.setattr(lowering, "SENSITIVE", frozenset())
    monkeypatch.setattr(lowering._Lowering, "_is_too_large", lambda self, number: False)
    report = verdict_of(found, lower_precision(graph, "fp16"))
    assert report.verdict == "fail", report.reason
    assert "no value overflows" in report.reason


def test_a_lost_epsilon_is_found(known, monkeypatch):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8, bias=False)

        def forward(self, x):
            y = self.linear(x)
            return y / (y.std(-1, keepdim=True) * 1e-4 + 1e-8)

    graph, found = known(Normed(), X)
    assert verdict_of(found, lower_precision(graph, "fp16")).capture.passed
    monkeypatch.setattr(lowering._Lowering, "_is_unfit", lambda self, number: False)
    monkeypatch.setattr(lowering, "_divides_by_tensor", lambda node: False)
    monkeypatch.setattr(lowering, "_is_sensitive_to", lambda user, node: False)
    report = verdict_of(found, lower_precision(graph, "fp16"))
    assert report.verdict == "fail", report.reason


def test_a_lost_weight_is_found(known):
    graph, found = known(Attention(), X, KEEP)
    broken = lower_precision(graph, "fp16")
    broken.program.state_dict["value.weight"].data[0] = 0
    report = verdict_of(found, broken)
    assert report.verdict == "fail"
    assert "farther from the model than float16 arithmetic explains" in report.reason


def test_a_swapped_index_is_found(known):
    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x).argmax(-1)

    graph, found = known(Chooser(), X)
    sound = lower_precision(graph, "fp16")
    assert verdict_of(found, sound).verdict == "pass"
    broken = lower_precision(graph, "fp16")
    broken.program.state_dict["linear.weight"].data[2] *= 2
    assert verdict_of(found, broken).verdict == "fail"


def test_an_overflow_that_float32_values_explain_is_unverified(known):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(self.linear(x) * 3e4 * 30) * 1e-3

    graph, found = known(Large(), X)
    report = verdict_of(found, lower_precision(graph, "fp16"))
    assert report.verdict == "unverified"
    assert "overflows float16" in report.reason
    assert verdict_of(found, lower_precision(graph, "bf16")).verdict == "pass"


def test_a_product_with_a_large_number_overflows_and_a_scaled_mask_does_not(known):
    class Scaled(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    def genuine(function):
        graph, _ = known(Scaled(function), X)
        return overflow_is_genuine(graph, {"x": X}, "float16")

    assert genuine(lambda x: x * 1e5)
    assert genuine(lambda x: (1e5 * x).relu() + 1)
    assert not genuine(lambda x: (1 - (x > 0).float()) * -1e9)
    assert not genuine(lambda x: x.masked_fill(x > 0, -1e9).softmax(-1))
    assert not genuine(lambda x: ((x > 0) * torch.finfo(torch.float32).min + x).softmax(-1))


def test_a_product_with_a_number_beyond_half_is_unverified(known):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(self.linear(x) * 1e5) * 1e-5

    graph, found = known(Scaled(), X)
    report = verdict_of(found, lower_precision(graph, "fp16"))
    assert report.verdict == "unverified"
    assert "overflows float16" in report.reason


def test_a_model_of_random_numbers_is_unverified(known):
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    graph, found = known(Noisy(), X)
    assert verdict_of(found, lower_precision(graph, "fp16")).verdict == "unverified"


def test_a_fixed_tolerance_is_that_of_the_half_type(known):
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x)

    graph, found = known(Linear(), X)
    found = replace(found, tolerance_reason="an operator has no float64")
    report = verdict_of(found, lower_precision(graph, "fp16"))
    assert report.verdict == "pass", report.reason
    assert verdict_of(found, lower_precision(graph, "fp16"), scaled_by(1.02)).verdict == "fail"


def test_a_half_file_of_unknown_origin_is_judged_by_the_precision_one_names(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    path = tmp_path / "net.onnx"
    isomorph.export(module, inputs=["4x16"], precision="fp16", output=path)
    path.with_name("net.onnx.manifest.json").unlink()
    given = {"inputs": ["4x16"]}
    assert isomorph.validate(path, module, **given).verdict == "fail"
    assert isomorph.validate(path, module, precision="fp16", **given).verdict == "pass"


class TopOfMasked(nn.Module):
    def forward(self, x, mask):
        values, places = x.masked_fill(~mask, float("-inf")).topk(3, -1)
        return values, places


def test_masked_values_stay_infinite_where_ties_are_ordered(capture_of):
    """Most rows hold fewer values than are taken, so the rest are equal infinities."""
    mask = torch.tensor([[True, True, False, False, False, False]])
    captured = capture_of(TopOfMasked(), torch.randn(1, 6), mask)
    chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True)
    found = reference.compute(captured.graph, TopOfMasked(), chosen)
    half = lowered_reference(found, lower_precision(captured.graph, "fp16"), Silent())
    assert half.capture.passed, half.capture.reason
