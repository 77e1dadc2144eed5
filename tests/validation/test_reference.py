"""The reference: sound captures pass, frozen ones do not, and odd models are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from isomorph.errors import UsageError
from isomorph.validation import cases, lanes, reference
from torch import nn


def exporting() -> bool:
    return torch.compiler.is_exporting()


def test_a_sound_capture_agrees_and_has_float64_truth(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: x * m.weight), torch.randn(4, 3))
    assert trial.reference.capture.passed
    assert trial.reference.capture.severity < 1
    assert trial.reference.expected["normal-0"]["output_0"].truth.dtype == np.float64


@pytest.mark.parametrize("factor", [3.0, 2.0001])
def test_a_branch_frozen_by_tracing_is_found_however_small(trial_of, module_of, factor):
    module = module_of(lambda m, x: x * factor if exporting() else x * 2.0)
    found = trial_of(module, torch.randn(4, 3)).reference.capture
    assert not found.passed
    assert "output_0" in found.reason
    assert found.case in found.reason
    assert found.severity > 1


def test_a_frozen_branch_that_only_some_inputs_take_is_found(trial_of, module_of):
    module = module_of(lambda m, x: x * 2 if exporting() or x.abs().max() < 20 else x * 3)
    assert trial_of(module, torch.randn(4, 3)).reference.capture.case.startswith("large")


def test_a_frozen_integer_is_found(trial_of, module_of):
    module = module_of(lambda m, i: i + (1 if exporting() else 2))
    found = trial_of(module, torch.tensor([1, 5, 9])).reference.capture
    assert "elements of output_0 differ" in found.reason


def test_a_frozen_size_is_found(trial_of, module_of):
    module = module_of(lambda m, x: x[:2] if exporting() else x[:3])
    found = trial_of(module, torch.randn(4, 3)).reference.capture
    assert "shape [2, 3] in the captured program" in found.reason


def test_a_failed_capture_can_never_pass(trial_of, module_of):
    module = module_of(lambda m, x: x * 3 if exporting() else x * 2)
    report = trial_of(module, torch.randn(4, 3)).judge()
    assert report.verdict == "fail"
    assert report.reason == report.capture.reason


def test_state_between_calls_is_found_and_named(trial_of):
    class Counter(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            if not exporting():
                self.calls += 1
            return {"still": x * 2, "moving": x + self.calls}

    found = trial_of(Counter(), torch.randn(3)).reference.capture
    assert found.output == "moving"
    assert "called twice with the same input" in found.reason


def test_random_operators_are_named_and_earn_no_pass(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: x + torch.rand_like(x)), torch.randn(4, 3))
    assert "aten.rand_like" in trial.reference.random[0]
    report = trial.judge()
    assert report.verdict == "unverified"
    assert any("aten.rand_like" in note for note in report.notes)
    assert trial.judge(spoil=lambda o: {}).verdict == "fail"


def test_dropout_in_eval_mode_is_not_random(trial_of, module_of):
    module = module_of(lambda m, x: nn.functional.dropout(x, 0.5, False) * 2)
    assert trial_of(module, torch.randn(4, 3)).judge().verdict == "pass"


def test_without_float64_the_report_says_so_and_still_finds_faults(trial_of, module_of):
    module = module_of(lambda m, x: (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32) * 2)
    trial = trial_of(module, torch.randn(4, 3))
    report = trial.judge()
    assert (report.verdict, report.method) == ("pass", "tolerance")
    assert any("float64 is impossible (aten.view.dtype" in note for note in report.notes)
    wrong = trial.judge(spoil=lambda o: {"output_0": o["output_0"] * np.float32(1.01)})
    assert wrong.verdict == "fail"


def test_without_float64_a_frozen_branch_is_found_too(trial_of, module_of):
    def forward(m, x):
        bits = (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)
        return bits * 3 if exporting() else bits * 2

    assert not trial_of(module_of(forward), torch.randn(4, 3)).reference.capture.passed


def test_a_case_on_which_the_model_is_not_finite_earns_nothing(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: (x * x).exp()), torch.randn(4, 30))
    report = trial.judge()
    earned = {case.name: case.verdict for case in report.cases}
    assert earned["large-0"] == "unverified"
    assert earned["normal-0"] == "pass"
    assert report.verdict == "pass"


def test_a_model_that_is_never_finite_is_unverified(trial_of, module_of):
    report = trial_of(module_of(lambda m, x: x * float("nan")), torch.randn(4, 3)).judge()
    assert report.verdict == "unverified"


def test_infinities_that_the_model_means_are_compared_by_position(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: x + m.mask), torch.randn(4, 3))
    assert trial.judge().verdict == "pass"
    report = trial.judge(spoil=lambda o: {"output_0": np.maximum(o["output_0"], -1e30)})
    assert report.verdict == "fail"
    assert "NaN or Inf on one side only" in report.reason


def test_unstable_integers_are_not_compared_and_are_counted(trial_of, module_of):
    def forward(m, x):
        tie = torch.stack([x.sum(-1), x.flip(-1).sum(-1), x.sum(-1) - 1], -1)
        return tie.argmax(-1), (x > 0).long()

    trial = trial_of(module_of(forward), torch.randn(64, 8), only=["normal-0", "normal-1"])
    unstable = trial.reference.expected["normal-0"]["output_0"].unstable
    assert unstable.mean() > 0.5
    assert not trial.reference.expected["normal-0"]["output_1"].unstable.any()

    def flip(outputs):
        outputs["output_0"] = np.where(unstable, 1 - outputs["output_0"], outputs["output_0"])
        return outputs

    report = trial.judge(spoil=flip)
    assert report.outputs[0].mismatches == 0
    assert report.outputs[0].unstable > 0
    wrong = trial.judge(spoil=lambda o: o | {"output_0": o["output_0"] * 0 + 2})
    assert wrong.verdict == "fail" or unstable.all()


def test_integers_that_are_all_unstable_are_unverified(trial_of, module_of):
    def forward(m, x):
        return (x.sum(-1) > x.flip(-1).double().sum(-1)).long()

    trial = trial_of(module_of(forward), torch.randn(1, 64), only=["normal-0"])
    assert trial.judge().verdict == "unverified"


def test_where_float64_decides_otherwise_float32_is_the_truth(trial_of, module_of):
    def forward(m, x):
        # 0.1 in float32 is above 0.1: the quotient reaches the next whole number there only.
        index = (torch.arange(1, 9) * torch.full((), 0.7) / torch.full((), 0.1)).floor()
        return x * index

    trial = trial_of(module_of(forward), torch.randn(4, 8))
    report = trial.judge()
    assert report.verdict == "pass"
    assert any("other decisions" in note for note in report.notes)
    spoiled = trial.judge(spoil=lambda o: {"output_0": o["output_0"] * np.float32(1.001)})
    assert spoiled.verdict == "fail"


def test_few_outputs_get_more_lanes(trial_of, module_of):
    few = trial_of(module_of(lambda m, x: (x @ m.weight).mean()), torch.randn(9, 3))
    many = trial_of(module_of(lambda m, x: x * m.weight), torch.randn(99, 3))
    lanes = [len(t.reference.expected["normal-0"]["output_0"].noise.lanes) for t in (few, many)]
    assert lanes == [7, 3]


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x.sum(),
        lambda m, x: (x, m.weight, x),
        lambda m, x: {"a": x * 2, "n": None, "k": 3},
        lambda m, x: torch.view_as_complex(torch.stack([x, x], -1)) * 1j,
        lambda m, x: x.half() * 2,
    ],
    ids=["0-d", "passthrough", "nested", "complex", "half"],
)
def test_odd_outputs_work(trial_of, module_of, function):
    report = trial_of(module_of(function), torch.randn(4, 3)).judge()
    assert report.verdict == "pass", report.reason


def test_an_output_without_elements_is_unverified(trial_of, module_of):
    report = trial_of(module_of(lambda m, x: x[:0]), torch.randn(4, 3)).judge()
    assert report.verdict == "unverified"
    assert "no elements" in report.reason


def masked_attention(m, x, mask):
    scores = x @ x.transpose(1, 2) + (1.0 - mask[:, None, :]) * torch.finfo(torch.float32).min
    return scores.softmax(-1) @ x


def test_a_float_mask_does_not_drown_the_floor_in_noise(trial_of, module_of):
    x, mask = torch.randn(2, 5, 8), torch.tensor([[1.0, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    trial = trial_of(module_of(masked_attention), x, mask)
    assert trial.judge().verdict == "pass"
    spoilt = trial.judge(spoil=lambda o: {k: v * 1.0001 for k, v in o.items()})
    assert spoilt.verdict == "fail"


def test_cancellation_is_noise_and_not_a_decision(trial_of, module_of):
    report = trial_of(module_of(lambda m, x: x - torch.tanh(x)), torch.randn(4, 30)).judge()
    assert report.verdict == "pass", report.reason
    assert not any("decisions" in note for note in report.notes)


def test_a_case_that_is_mostly_noise_earns_nothing(trial_of, module_of):
    report = trial_of(module_of(lambda m, x: (x + 1e7) - 1e7), torch.randn(4, 30)).judge()
    assert report.verdict == "unverified"
    assert "own rounding noise" in report.reason


def test_indices_of_tied_values_are_not_compared(trial_of, module_of):
    tied = torch.tensor([[1.0, 3.0, 3.0, 0.0, 0.0], [2.0, 1.0, 2.0, 0.0, 5.0]])
    trial = trial_of(module_of(lambda m, x: x.topk(4, 1).indices), tied)

    def other_order(outputs):
        (name,) = outputs
        chosen = outputs[name].copy()
        if chosen.tolist() == [[1, 2, 0, 3], [4, 0, 2, 1]]:
            chosen[:] = [[2, 1, 0, 4], [4, 2, 0, 1]]
        return {name: chosen}

    assert trial.judge(spoil=other_order).verdict == "pass"


def from_the_end(operator):
    """`operator`, but of equal values it takes the last one first."""

    def reversed_ties(m, x):
        found = operator(m, x.flip(-1))
        if isinstance(found, torch.Tensor):
            return x.shape[-1] - 1 - found
        return found[0], x.shape[-1] - 1 - found[1]

    return reversed_ties


@pytest.mark.parametrize(
    ("operator", "verdict"),
    [
        (lambda m, x: tuple(x.sort(-1)), "pass"),
        (lambda m, x: tuple(x.topk(3)), "pass"),
        (lambda m, x: x.argsort(-1), "pass"),
        (lambda m, x: tuple(torch.sort(x, dim=-1, stable=True)), "fail"),
        (lambda m, x: x.argmax(-1), "fail"),
        (lambda m, x: tuple(x.max(-1)), "fail"),
    ],
    ids=["sort", "topk", "argsort", "stable sort", "argmax", "max"],
)
def test_ties_of_whole_numbers_have_the_order_that_the_operator_promises(
    trial_of, module_of, operator, verdict
):
    whole = torch.randint(0, 4, (3, 9), generator=torch.Generator().manual_seed(0))
    trial = trial_of(module_of(operator), whole)
    assert trial.judge().verdict == "pass"
    assert trial.judge(module_of(from_the_end(operator))).verdict == verdict


def test_sorted_whole_numbers_are_compared_where_their_places_are_not(trial_of, module_of):
    whole = torch.randint(0, 4, (3, 9), generator=torch.Generator().manual_seed(0))
    trial = trial_of(module_of(lambda m, x: tuple(x.sort(-1))), whole)

    def one_more(outputs):
        values, *others = outputs
        return {values: outputs[values] + 1, **{name: outputs[name] for name in others}}

    assert trial.judge(spoil=one_more).verdict == "fail"


def test_a_graph_without_outputs_is_unverified(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: x), torch.randn(4, 3))
    trial.graph = replace(trial.graph, outputs=(), output_nodes=())
    trial.reference = reference.compute(trial.graph, trial.module, trial.cases)
    report = trial.judge()
    assert report.verdict == "unverified"
    assert "no output" in report.reason


def test_a_model_that_raises_on_our_values_loses_the_case_with_a_note(trial_of, module_of):
    def forward(m, x):
        if not exporting() and x.abs().max() > 20:
            raise ValueError("too large")
        return x * 2

    trial = trial_of(module_of(forward), torch.randn(4, 3))
    assert not any(case.kind == "large" for case in trial.reference.cases)
    assert any("large-0 left out" in note for note in trial.judge().notes)


def test_a_model_that_raises_on_a_size_is_a_usage_error(trial_of, module_of):
    def forward(m, x):
        if not exporting() and x.shape[0] == 9:
            raise ValueError("at most 8")
        return x * 2

    with pytest.raises(UsageError, match=r"batch=9 .*at most 8"):
        trial_of(module_of(forward), torch.randn(4, 3), dynamic=["inputs_0.0=batch:1..9"])


def test_a_model_that_refuses_strides_is_tried_contiguous(trial_of, module_of):
    trial = trial_of(module_of(lambda m, x: x.view(-1) * 2), torch.randn(2, 3, 4, 4))
    assert trial.judge().verdict == "pass"
    assert any("contiguous" in note for note in trial.reference.notes)


def test_lanes_that_do_not_fit_together_give_the_same_figures(
    trial_of, capture_of, module_of, monkeypatch
):
    module = module_of(lambda m, x: x * m.weight)
    captured = capture_of(module, torch.randn(4, 3))
    chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True)
    whole = reference.compute(captured.graph, module, chosen)
    monkeypatch.setattr(lanes, "_LANES_BYTES", 1)
    pieces = reference.compute(captured.graph, module, chosen)
    for name, outputs in whole.expected.items():
        assert outputs["output_0"].noise == pieces.expected[name]["output_0"].noise


def test_progress_gets_one_step_per_case(capture_of, module_of):
    steps = []

    class Listener:
        def stage(self, name, total=None):
            steps.append(total)
            return self

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def advance(self, count=1):
            steps.append(-count)

        def note(self, message):
            pass

    module = module_of(lambda m, x: x * m.weight)
    captured = capture_of(module, torch.randn(4, 3))
    chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True)
    reference.compute(captured.graph, module, chosen, progress=Listener())
    assert sum(steps) == 0
