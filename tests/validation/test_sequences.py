"""Decoded sequences: what follows a token that rounding decides is not compared, the rest is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isomorph.validation.sequences import unstable_elements
from torch import nn


def marked(truth: list[int], *lanes: list[int]) -> str:
    unstable = unstable_elements(np.array(truth), [np.array(lane) for lane in lanes])
    return "".join("x" if mark else "." for mark in unstable)


@pytest.mark.parametrize(
    ("lane", "marks"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], "........"),
        ([1, 2, 9, 9, 5, 9, 7, 9], "..xxxxxx"),  # most of the rest differs: it was fed back
        ([1, 2, 9, 4, 5, 6, 9, 8], "..x...x."),  # two ties, each for itself
        ([1, 2, 3, 4, 5, 9, 9, 8], ".....xx."),  # too short a rest to tell
        ([9, 9, 9, 9, 9, 6, 7, 8], "xxxxxxxx"),
    ],
)
def test_the_rest_of_a_sequence_follows_its_first_unstable_token(lane, marks):
    assert marked([1, 2, 3, 4, 5, 6, 7, 8], lane) == marks


def test_rows_are_told_apart_and_so_are_evaluations():
    truth = np.arange(16).reshape(2, 8)
    one, other = truth.copy(), truth.copy()
    one[0, 4:] += 100
    other[1, 6] += 100
    unstable = unstable_elements(truth, [one, other])
    assert unstable.nonzero()[0].tolist() == [0, 0, 0, 0, 1]


def test_booleans_are_no_tokens():
    truth = np.array([True] * 8)
    lane = np.array([True, True, False, False, True, False, False, True])
    assert (unstable_elements(truth, [lane]) == (lane != truth)).all()


class Decoder(nn.Module):
    """Greedy decoding for ten steps; each token is fed into the next step."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.table = nn.Embedding(12, 8)
        self.state, self.head = nn.Linear(16, 8), nn.Linear(8, 12)
        for value in self.parameters():
            value.data = 3 * torch.randn(value.shape, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        token = torch.zeros(x.shape[0], dtype=torch.int64)
        tokens = []
        for _ in range(10):
            x = torch.tanh(self.state(torch.cat([x, self.table(token)], -1)))
            token = self.head(x).argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)


def tie(module: Decoder, x: torch.Tensor, step: int) -> None:
    """Make the second-best token of one step of the first row as good as the best, to rounding."""
    token = torch.zeros(1, dtype=torch.int64)
    state = x[:1]
    for _ in range(step + 1):
        state = torch.tanh(module.state(torch.cat([state, module.table(token)], -1)))
        scores = module.head(state)
        token = scores.argmax(-1)
    best, second = scores.topk(2).indices[0]
    gap = scores[0, best] - scores[0, second]
    module.head.bias.data[second] += gap


@pytest.fixture(scope="module")
def trial(trial_of):
    torch.manual_seed(1)
    x = torch.randn(3, 8)
    module = Decoder().eval()
    with torch.no_grad():
        tie(module, x, 2)
    return trial_of(module, x, only=("normal-0",))


def test_greedy_decoding_past_a_tie_is_not_compared(trial):
    (expected,) = trial.reference.expected["normal-0"].values()
    rows = expected.unstable
    print(rows.astype(int))
    assert trial.reference.capture.passed
    first = int(rows[0].argmax())
    assert rows[0].any()
    assert rows[0, first:].all()

    def another_rest(outputs):
        outputs["output_0"][0, first:] = (outputs["output_0"][0, first:] + 1) % 12
        return outputs

    report = trial.judge(spoil=another_rest)
    assert report.verdict == "pass", report.reason
    assert report.outputs[0].unstable >= 10 - first


def test_a_token_before_the_tie_or_in_another_row_must_match(trial):
    (expected,) = trial.reference.expected["normal-0"].values()
    stable = list(zip(*np.nonzero(~expected.unstable), strict=True))

    for place in (stable[0], stable[-1]):

        def spoil(outputs, place=place):
            outputs["output_0"][place] += 1
            return outputs

        report = trial.judge(spoil=spoil)
        assert report.verdict == "fail"
        assert "elements differ" in report.reason


class Nested(nn.Module):
    """A list, a tuple in it, and a dictionary of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple:
        y = self.body(x)
        return [y, (y.tanh(), y.argmax(-1))], {"heads": [y.sigmoid(), y.exp()]}


def test_lists_and_tuples_are_judged_part_by_part(trial_of):
    trial = trial_of(Nested(), torch.randn(5, 4))
    names = [output.name for output in trial.graph.outputs]
    assert len(names) == len(set(names)) == 5
    assert trial.judge().verdict == "pass"
    for name in names:

        def spoil(outputs, name=name):
            outputs[name] = outputs[name] + outputs[name].dtype.type(1)
            return outputs

        report = trial.judge(spoil=spoil)
        assert [o.name for o in report.outputs if o.verdict == "fail"] == [name]
