"""Recurrent layers.

Sources: the documentation of the MIL operators, and Apple's comments on `LSTMParams`,
`GRULayerParams` and their like in the Core ML model format (NeuralNetwork.proto). Where the two
differ, a result is given only if it is the same under both.

float16: the sums of a gate are kept as `accumulate` says; gates are computed in float32, and the
states rounded to float16 at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import sums
from .call import Call, Operator
from .elementwise import FLOATS, of_dtype
from .readings import agreed

__all__ = ["OPERATORS"]

Activation = Callable[[torch.Tensor], torch.Tensor]
State = tuple[torch.Tensor, ...]
Step = Callable[[torch.Tensor, State], State]

# scaled_tanh is left out: NeuralNetwork.proto gives its constant once as 1.7159, once as 1.71.
_ACTIVATIONS: dict[str, Activation] = {
    # "Currently only supported for alpha = 0.2, beta = 0.5" (NeuralNetwork.proto).
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "linear": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
_ALIASES = {"sigmoid_hard": "hard_sigmoid"}  # as the documentation of rnn spells it


def rnn(call: Call) -> tuple[torch.Tensor, ...]:
    """h_t = activation(W_ih x_t + W_hh h_(t-1) + b): [s or 1, b, H] and the last [b, H]."""
    x, weights = _sequence(call), _weights(call, 1)
    activation = _activation(call, "activation", "tanh")

    def step(now: torch.Tensor, state: State) -> State:
        return (activation(weights.gates(call, now, state[0])),)

    return _uni(call, x, (_state(call, "initial_h", x, weights.hidden),), step)


def gru(call: Call) -> tuple[torch.Tensor, ...]:
    """Gates reset, output, update: [s or 1, b, H] and the last [b, H].

    The documentation multiplies the reset gate with a product of `weight_hh`, that of the older
    format with the state before that product; the text on `reset_after` (iOS 18) can be read as
    either. So it is computed both ways, whatever `reset_after` says.
    """
    x, weights = _sequence(call), _weights(call, 3)
    inner = _activation(call, "recurrent_activation", "sigmoid")
    outer = _activation(call, "activation", "tanh")
    start = (_state(call, "initial_h", x, weights.hidden),)
    if call.opset >= 8:
        call.flag("reset_after", False)
        extra = call.optional_tensor("input_bias")
        if extra is not None and bool(extra.count_nonzero()):
            call.refuse("an input_bias: what the reset gate does to bias is then not documented")

    def steps(after: bool) -> Step:
        def step(now: torch.Tensor, state: State) -> State:
            last = state[0].float()
            reset, _, update = weights.gates(call, now, state[0]).chunk(3, -1)
            r, z = inner(reset), inner(update)
            if after:
                found = weights.gate(call, 1, now) + r * weights.recurrent(call, 1, state[0])
            else:
                given = (r * last).to(state[0].dtype)
                found = weights.gate(call, 1, now) + weights.recurrent(call, 1, given)
            o = outer(found)
            return ((1 - z) * o + z * last,)

        return step

    ways = [_uni(call, x, start, steps(after)) for after in (True, False)]
    edge = "whether the reset gate acts after or before the product with weight_hh"
    return tuple(agreed(call, edge, way) for way in zip(*ways, strict=True))


def lstm(call: Call) -> tuple[torch.Tensor, ...]:
    """Gates input, forget, output, cell: [s or 1, b, D * H], and the last h and c, [b, D * H]."""
    x = _sequence(call)
    direction = call.text("direction", "forward", choices=("forward", "reverse", "bidirectional"))
    both = direction == "bidirectional"
    weights = [_weights(call, 4), _weights(call, 4, "_back") if both else None]
    hidden = weights[0].hidden if weights[0] else 0
    functions = (
        _activation(call, "recurrent_activation", "sigmoid"),
        _activation(call, "cell_activation", "tanh"),
        _activation(call, "activation", "tanh"),
    )
    limit = call.number("clip") if call.has("clip") else None
    peepholes = [call.optional_tensor("peephole"), call.optional_tensor("peephole_back")]
    for name in ("weight_ih_back", "weight_hh_back", "bias_back"):
        call.value(name, None)  # "only used when direction is bidirectional"
    width = hidden * (2 if both else 1)
    h, c = _state(call, "initial_h", x, width), _state(call, "initial_c", x, width)
    found = []
    for index, one in enumerate(way for way in weights if way):
        if one.hidden != hidden:
            raise call.damaged("the two directions are not of one size")
        cell = _Cell(call, one, functions, peepholes[index], limit)
        part = slice(index * hidden, (index + 1) * hidden)
        backward = index == 1 or direction == "reverse"
        found.append(_scanned(x, (h[:, part], c[:, part]), cell.step, backward))
    if call.flag("output_sequence", False):
        _refuse_order(call, x, direction)
        # Both directions in the order of x: see BiDirectionalLSTMLayerParams.
        outputs = torch.cat([states[0] for states, _ in found], -1)
    else:
        outputs = torch.cat([last[0] for _, last in found], -1)[None]
    return (outputs, *(torch.cat([last[i] for _, last in found], -1) for i in range(2)))


OPERATORS: dict[str, Operator] = {"gru": gru, "lstm": lstm, "rnn": rnn}


@dataclass(frozen=True)
class _Weights:
    """weight_ih [gates * H, I], weight_hh [gates * H, H], bias [gates * H]."""

    inputs: torch.Tensor
    states: torch.Tensor
    bias: torch.Tensor | None

    @property
    def hidden(self) -> int:
        return self.states.shape[1]

    def gates(self, call: Call, now: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """W_ih now + W_hh last + b of all gates, float32: [b, gates * H]."""
        both = torch.cat([now, last], -1)
        return _product(call, both, torch.cat([self.inputs, self.states], -1), self.bias)

    def gate(self, call: Call, index: int, now: torch.Tensor) -> torch.Tensor:
        """W_ih now + b of one gate."""
        rows = self._rows(index)
        bias = None if self.bias is None else self.bias[rows]
        return _product(call, now, self.inputs[rows], bias)

    def recurrent(self, call: Call, index: int, last: torch.Tensor) -> torch.Tensor:
        """W_hh last of one gate."""
        return _product(call, last, self.states[self._rows(index)], None)

    def _rows(self, index: int) -> slice:
        return slice(index * self.hidden, (index + 1) * self.hidden)


@dataclass(frozen=True)
class _Cell:
    """One direction of an LSTM; `functions` of the gates, of the cell gate, and of the cell."""

    call: Call
    weights: _Weights
    functions: tuple[Activation, Activation, Activation]
    peephole: torch.Tensor | None
    limit: float | None

    def step(self, now: torch.Tensor, state: State) -> State:
        """i, f, z, o, c and h of the documentation; peepholes as in LSTMParams."""
        f, g, h = self.functions
        last = state[1].float()
        gates = self.weights.gates(self.call, now, state[0]).chunk(4, -1)
        hole_i, hole_f, hole_o = self._holes()
        put = f(gates[0] + hole_i * last)
        keep = f(gates[1] + hole_f * last)
        fresh = g(gates[3])
        cell = (keep * last + put * fresh).to(state[1].dtype)
        for value in (gates[3], fresh, cell):
            # "Cell gate is clipped" here, "the values of c_t" in LSTMParams.
            if self.limit is not None and bool((value.abs() > self.limit).any()):
                self.call.refuse("what clip limits")
        return f(gates[2] + hole_o * cell.float()) * h(cell.float()), cell

    def _holes(self) -> tuple[torch.Tensor, ...]:
        if self.peephole is None:
            return (torch.zeros(()),) * 3
        if self.peephole.shape != (3 * self.weights.hidden,):
            raise self.call.damaged(f"peephole of shape {list(self.peephole.shape)}")
        return self.peephole.float().chunk(3)


def _product(
    call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """x [b, k] by weight [n, k], and bias; float32."""
    found = sums.product(x, weight.T, call.accumulate)
    return found if bias is None else found + bias.float()


def _sequence(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS if call.opset >= 7 else (torch.float32,))
    if x.dim() != 3:
        raise call.damaged(f"x has rank {x.dim()}, not 3")
    if not x.numel():
        call.refuse("an empty sequence")
    return x


def _weights(call: Call, gates: int, suffix: str = "") -> _Weights:
    inputs, states = call.tensor(f"weight_ih{suffix}"), call.tensor(f"weight_hh{suffix}")
    bias = call.optional_tensor(f"bias{suffix}")
    hidden = states.shape[-1]
    fits = states.shape == (gates * hidden, hidden) and inputs.dim() == 2
    if not fits or inputs.shape[0] != gates * hidden or inputs.shape[1] != _width(call):
        raise call.damaged(
            f"weights {list(inputs.shape)} and {list(states.shape)} do not make {gates} gates"
        )
    if bias is not None and bias.shape != (gates * hidden,):
        raise call.damaged(f"bias of shape {list(bias.shape)} for {gates} gates of {hidden}")
    return _Weights(inputs, states, bias)


def _width(call: Call) -> int:
    return call.tensor("x").shape[-1]


def _state(call: Call, name: str, x: torch.Tensor, width: int) -> torch.Tensor:
    found = call.tensor(name)
    if found.shape != (x.shape[1], width):
        raise call.damaged(f"{name} of shape {list(found.shape)}, not {[x.shape[1], width]}")
    return found


def _activation(call: Call, name: str, default: str) -> Activation:
    choices = (*_ACTIVATIONS, *(_ALIASES if call.kind == "rnn" else ()))
    found = call.text(name, default, choices=choices)
    return _ACTIVATIONS[_ALIASES.get(found, found)]


def _scanned(x: torch.Tensor, start: State, step: Step, backward: bool) -> tuple[State, State]:
    """The states after each step, in the order of x, and after the last step."""
    states, state = [], start
    order = range(len(x))
    for index in reversed(order) if backward else order:
        state = tuple(part.to(x.dtype) for part in step(x[index], state))
        states.append(state)
    kept = reversed(states) if backward else states
    return tuple(map(torch.stack, zip(*kept, strict=True))), state


def _uni(call: Call, x: torch.Tensor, start: State, step: Step) -> tuple[torch.Tensor, ...]:
    direction = call.text("direction", "forward", choices=("forward", "reverse"))
    states, last = _scanned(x, start, step, direction == "reverse")
    if not call.flag("output_sequence", False):
        return last[0][None], last[0]
    _refuse_order(call, x, direction)
    return states[0], last[0]


def _refuse_order(call: Call, x: torch.Tensor, direction: str) -> None:
    if direction == "reverse" and len(x) > 1:
        call.refuse("whether the sequence of a reverse layer is in the order of its input")
