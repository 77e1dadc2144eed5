"""Faults that change what a model computes fail; other orders of the same arithmetic pass."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """Convolutions with reflected borders, then attention; two float outputs and a class."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1, padding_mode="reflect")
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 12)
        self.side = nn.Linear(width, 12)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.stem(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.mix(functional.scaled_dot_product_attention(q, k, v))
        x = (x + self.down(self.act(self.up(x)))).mean(1)
        scores = self.head(x)
        return {"scores": scores, "side": self.side(x), "label": scores.argmax(-1)}


@pytest.fixture(scope="module")
def trial(trial_of):
    torch.manual_seed(0)
    return trial_of(Net(), torch.randn(2, 3, 12, 12), dynamic=["x.0=batch:1..5"])


def triple_epsilon(net: Net) -> None:
    net.norm.eps *= 3


def tanh_gelu(net: Net) -> None:
    net.act = nn.GELU(approximate="tanh")


def round_a_weight_to_half(net: Net) -> None:
    net.up.weight.data = net.up.weight.data.half().float()


def transpose_a_square_weight(net: Net) -> None:
    net.mix.weight.data = net.mix.weight.data.T.contiguous()


def flip_the_padding(net: Net) -> None:
    net.stem.padding_mode = "replicate"


def drop_a_bias(net: Net) -> None:
    net.down.bias.data.zero_()


def swap_the_outputs(net: Net) -> None:
    net.head, net.side = net.side, net.head


FAULTS = [
    triple_epsilon,
    tanh_gelu,
    round_a_weight_to_half,
    transpose_a_square_weight,
    flip_the_padding,
    drop_a_bias,
    swap_the_outputs,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_wrong_module_fails(trial, fault: Callable[[Net], None]):
    faulty = copy.deepcopy(trial.module)
    fault(faulty)
    report = trial.judge(faulty)
    worst = max(o.peak_ratio or 0 for o in report.outputs)
    print(f"{fault.__name__}: {worst:.3g} floors")
    assert report.verdict == "fail"
    assert worst > 30


def put_nan(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs["scores"][0, 0] = np.nan
    return outputs


def put_infinity(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs["side"][-1, -1] = np.inf
    return outputs


def shift_the_label(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return outputs | {"label": outputs["label"] + 1}


def narrow_the_label(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return outputs | {"label": outputs["label"].astype(np.int32)}


def add_an_axis(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return outputs | {"side": outputs["side"][None]}


def lose_an_output(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in outputs.items() if name != "side"}


@pytest.mark.parametrize(
    ("spoil", "output", "words"),
    [
        (put_nan, "scores", "NaN or Inf"),
        (put_infinity, "side", "NaN or Inf"),
        (shift_the_label, "label", "elements differ"),
        (narrow_the_label, "label", "dtype is int32, not int64"),
        (add_an_axis, "side", "shape is"),
        (lose_an_output, "side", "missing"),
    ],
)
def test_a_wrong_output_fails_and_is_named(trial, spoil, output, words):
    report = trial.judge(spoil=spoil)
    assert report.verdict == "fail"
    assert report.reason.startswith(f"{output}: ")
    assert words in report.reason
    assert [o.name for o in report.outputs if o.verdict == "fail"] == [output]


def test_one_wrong_element_of_many_fails(trial):
    def spoil(outputs):
        outputs["scores"][0, 3] += 1e-3 * np.abs(outputs["scores"]).max()
        return outputs

    assert trial.judge(spoil=spoil).verdict == "fail"


def test_a_fault_at_one_batch_size_fails(trial):
    def spoil(outputs):
        if outputs["scores"].shape[0] == 1:
            outputs["scores"] *= 1.001
        return outputs

    report = trial.judge(spoil=spoil)
    assert report.verdict == "fail"
    assert report.outputs[0].worst_case == "batch=1"


def test_state_kept_between_calls_fails(trial):
    calls = []

    def spoil(outputs):
        calls.append(1)
        outputs["scores"] += 1e-3 * len(calls)
        return outputs

    report = trial.judge(spoil=spoil)
    assert report.verdict == "fail"
    assert any(case.name == "normal-0 (after the others)" for case in report.cases)


def test_a_session_that_raises_fails_and_names_the_case(trial):
    def spoil(outputs):
        if outputs["scores"].shape[0] == 5:
            raise RuntimeError("invalid dimensions\nmore")
        return outputs

    report = trial.judge(spoil=spoil)
    assert report.verdict == "fail"
    assert "RuntimeError: invalid dimensions on case batch=5" in report.reason


def test_the_untouched_module_passes(trial):
    report = trial.judge()
    assert report.verdict == "pass"
    assert report.method == "float64"
    print([(o.name, o.peak_ratio, o.rms_ratio) for o in report.outputs])


def without_onednn(net: Net, x: torch.Tensor) -> dict[str, torch.Tensor]:
    with torch.backends.mkldnn.flags(enabled=False):
        return net(x)


def one_thread(net: Net, x: torch.Tensor) -> dict[str, torch.Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return net(x)
    finally:
        torch.set_num_threads(before)


def one_row_at_a_time(net: Net, x: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = [net(row[None]) for row in x]
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def channels_last(net: Net, x: torch.Tensor) -> dict[str, torch.Tensor]:
    return copy.deepcopy(net).to(memory_format=torch.channels_last)(
        x.contiguous(memory_format=torch.channels_last)
    )


def reversed_sums(net: Net, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same layers with the inner units in another order."""
    other = copy.deepcopy(net)
    order = torch.arange(other.up.out_features - 1, -1, -1)
    other.up.weight.data, other.up.bias.data = other.up.weight[order], other.up.bias[order]
    other.down.weight.data = other.down.weight[:, order]
    return other(x)


@pytest.mark.parametrize(
    "evaluate",
    [without_onednn, one_thread, one_row_at_a_time, channels_last, reversed_sums],
    ids=lambda f: f.__name__,
)
def test_the_same_arithmetic_in_another_order_passes(trial, evaluate):
    class Variant(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return evaluate(trial.module, x)

    report = trial.judge(Variant())
    print([(o.name, o.peak_ratio, o.rms_ratio) for o in report.outputs])
    assert report.verdict == "pass", report.reason
