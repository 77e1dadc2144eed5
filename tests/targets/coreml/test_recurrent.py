"""LSTM, GRU and RNN, and pooling that leaves its stride out, as captured programs have them."""

from __future__ import annotations

import pytest
import torch


class Recurrent(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = getattr(torch.nn, kind)(4, 5, **options)

    def forward(self, x):
        sequence, states = self.layers(x)
        return (sequence, *states) if isinstance(states, tuple) else (sequence, states)


DEEP = {"num_layers": 2, "bidirectional": True, "batch_first": True}


@pytest.mark.parametrize(
    ("kind", "options", "operator"),
    [
        ("LSTM", {}, "lstm"),
        ("LSTM", {"bias": False}, "lstm"),
        ("LSTM", DEEP, "lstm"),
        ("GRU", {}, "while_loop"),
        ("GRU", DEEP, "while_loop"),
        ("RNN", {}, "rnn"),
        ("RNN", {"nonlinearity": "relu", "num_layers": 2}, "rnn"),
    ],
)
def test_layers_keep_their_operator(write, kind, options, operator):
    written = write(Recurrent(kind, **options), torch.randn(3, 6, 4))
    assert operator in written.operators()
    written.demand_right(torch.randn(3, 6, 4), tolerance=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_batch_may_vary(write, kind):
    written = write(Recurrent(kind, batch_first=True), torch.randn(3, 6, 4), x_0="batch:1..8")
    for batch in (1, 8):
        written.demand_right(torch.randn(batch, 6, 4), tolerance=1e-5)


@pytest.mark.parametrize("pooling", ["max_pool2d", "avg_pool2d"])
def test_pooling_without_a_stride_has_its_windows(write, pooling):
    model = getattr(torch.nn.functional, pooling)
    written = write(lambda x: model(x, (2, 3)), torch.randn(1, 2, 8, 9))
    assert written.operators() == [pooling[:-2]]
    written.demand_right(torch.randn(1, 2, 8, 9))
