"""Keep LSTM, GRU and RNN whole while torch.export traces them.

torch.export records `aten.lstm.input` as one node, but to learn the shapes of
its results it runs a Python decomposition that loops over the time axis, and
that loop fixes the axis to the example's length (seen with torch 2.14: a
dynamic time axis is refused, `Dim.AUTO` fixes it silently). The shapes follow
from the arguments alone, so while capturing we compute only those. The node
that is recorded, and what it computes when run, are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

__all__ = ["whole_recurrent_operators"]

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


def _output(data: torch.Tensor, hidden: torch.Tensor, bidirectional: bool) -> torch.Tensor:
    """Result of the recurrent operators: [time, batch, directions * hidden], or batch first."""
    directions = 2 if bidirectional else 1
    return data.new_empty((data.shape[0], data.shape[1], directions * hidden.shape[-1]))


def _lstm_shapes(
    data: torch.Tensor,
    states: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden, cell = states
    return (
        _output(data, hidden, bidirectional),
        torch.empty_like(hidden),
        torch.empty_like(cell),
    )


def _rnn_shapes(
    data: torch.Tensor,
    hidden: torch.Tensor,
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _output(data, hidden, bidirectional), torch.empty_like(hidden)


@contextmanager
def whole_recurrent_operators() -> Iterator[None]:
    """While active, tracing infers the shapes of recurrent operators without unrolling them."""
    aten = torch.ops.aten
    shapes: dict[Any, Callable[..., Any]] = {
        aten.lstm.input: _lstm_shapes,
        aten.gru.input: _rnn_shapes,
        aten.rnn_tanh.input: _rnn_shapes,
        aten.rnn_relu.input: _rnn_shapes,
    }
    saved = {operator: dict(operator.py_kernels) for operator in shapes}
    try:
        for operator, function in shapes.items():
            for key in _KEYS:
                operator.py_kernels[key] = function
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernels in saved.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
