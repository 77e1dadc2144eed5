"""Recurrent layers against torch's cells in float64 and against loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]
STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hard_sigmoid": lambda x: torch.clamp(0.2 * x + 0.5, 0, 1),
    "linear": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def noise(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.8).astype(np.float32)


def wide(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array)).double()


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def weights(gates: int, suffix: str = "", seed: int = 10) -> dict[str, Array]:
    return {
        f"weight_ih{suffix}": noise(gates * HIDDEN, INPUTS, seed=seed),
        f"weight_hh{suffix}": noise(gates * HIDDEN, HIDDEN, seed=seed + 1),
        f"bias{suffix}": noise(gates * HIDDEN, seed=seed + 2),
    }


def states(directions: int = 1) -> dict[str, Array]:
    return {
        "initial_h": noise(BATCH, directions * HIDDEN, seed=3),
        "initial_c": noise(BATCH, directions * HIDDEN, seed=4),
    }


X = noise(STEPS, BATCH, INPUTS)


def for_torch(array: Array) -> torch.Tensor:
    """Gates in torch's order (input, forget, cell, output) from input, forget, output, cell."""
    i, f, o, z = wide(array).chunk(4)
    return torch.cat([i, f, z, o])


def torch_lstm(bidirectional: bool = False) -> Any:
    module = torch.nn.LSTM(INPUTS, HIDDEN, bidirectional=bidirectional).double()
    for suffix, ours, seed in (("", "", 10), ("_reverse", "_back", 20))[: 1 + bidirectional]:
        own = weights(4, ours, seed)
        with torch.no_grad():
            getattr(module, f"weight_ih_l0{suffix}").copy_(for_torch(own[f"weight_ih{ours}"]))
            getattr(module, f"weight_hh_l0{suffix}").copy_(for_torch(own[f"weight_hh{ours}"]))
            getattr(module, f"bias_ih_l0{suffix}").copy_(for_torch(own[f"bias{ours}"]))
            getattr(module, f"bias_hh_l0{suffix}").zero_()
    return module


def reference(module: Any, directions: int = 1) -> tuple[torch.Tensor, ...]:
    """Sequence, and last states as MIL has them: [b, D * H]."""
    given = [
        torch.stack(wide(array).chunk(directions, -1)) for array in states(directions).values()
    ]
    with torch.no_grad():
        out, last = module(wide(X), tuple(given))
    return out, *(torch.cat(list(state), -1) for state in last)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("opset", [5, 7, 9])
def test_forward_lstm_is_that_of_torch(evaluated: Evaluated, sequence: bool, opset: int) -> None:
    out, h, c = reference(torch_lstm())

    found = evaluated(
        "lstm",
        {"x": X, **states()},
        opset=opset,
        **weights(4),
        direction="forward",
        output_sequence=sequence,
    )

    close(found, (out if sequence else out[-1:], h, c))


@pytest.mark.parametrize("sequence", [False, True])
def test_bidirectional_lstm_is_that_of_torch(evaluated: Evaluated, sequence: bool) -> None:
    out, h, c = reference(torch_lstm(bidirectional=True), 2)

    found = evaluated(
        "lstm",
        {"x": X, **states(2)},
        **weights(4),
        **weights(4, "_back", 20),
        direction="bidirectional",
        output_sequence=sequence,
    )

    close(found, (out if sequence else h[None], h, c))


def test_reverse_lstm_reads_the_sequence_from_its_end(evaluated: Evaluated) -> None:
    given = {"x": np.ascontiguousarray(X[::-1]), **states()}

    found = evaluated("lstm", {"x": X, **states()}, **weights(4), direction="reverse")

    close(found, evaluated("lstm", given, **weights(4)))


def looped_lstm(
    activations: tuple[str, str, str], peephole: Array | None
) -> tuple[torch.Tensor, ...]:
    """The documented equations, gate after gate; peepholes as in LSTMParams."""
    f, g, o = (ACTIVATIONS[name] for name in activations)
    own = {key: wide(value) for key, value in weights(4).items()}
    h, c = (wide(value) for value in states().values())
    holes = torch.zeros(3, HIDDEN) if peephole is None else wide(peephole).reshape(3, HIDDEN)
    for now in wide(X):
        rows = [slice(i * HIDDEN, (i + 1) * HIDDEN) for i in range(4)]
        gates = [
            now @ own["weight_ih"][r].T + h @ own["weight_hh"][r].T + own["bias"][r] for r in rows
        ]
        put, keep = f(gates[0] + holes[0] * c), f(gates[1] + holes[1] * c)
        c = keep * c + put * g(gates[3])
        h = f(gates[2] + holes[2] * c) * o(c)
    return h[None], h, c


@pytest.mark.parametrize(
    "activations",
    [
        ("hard_sigmoid", "tanh", "tanh"),
        ("sigmoid", "relu", "linear"),
        ("tanh", "sigmoid", "hard_sigmoid"),
    ],
)
@pytest.mark.parametrize("peephole", [None, noise(3 * HIDDEN, seed=7)])
def test_activations_and_peepholes(
    evaluated: Evaluated, activations: tuple[str, str, str], peephole: Array | None
) -> None:
    options = {} if peephole is None else {"peephole": peephole}

    found = evaluated(
        "lstm",
        {"x": X, **states()},
        **weights(4),
        recurrent_activation=activations[0],
        cell_activation=activations[1],
        activation=activations[2],
        **options,
    )

    close(found, looped_lstm(activations, peephole))


def test_peepholes_of_the_way_back(evaluated: Evaluated) -> None:
    holes = noise(3 * HIDDEN, seed=7)
    back = {f"{key}_back": value for key, value in weights(4).items()}
    half = states()
    both = {key: np.tile(value, 2) for key, value in half.items()}

    found = evaluated(
        "lstm",
        {"x": X, **both},
        **weights(4),
        **back,
        peephole_back=holes,
        direction="bidirectional",
    )

    forward = evaluated("lstm", {"x": X, **half}, **weights(4))
    reverse = evaluated("lstm", {"x": X, **half}, **weights(4), peephole=holes, direction="reverse")
    close(found, [torch.cat(pair, -1) for pair in zip(forward, reverse, strict=True)])


def test_defaults_of_lstm_leave_out_the_bias(evaluated: Evaluated) -> None:
    own = weights(4)
    bias = own.pop("bias")

    found = evaluated("lstm", {"x": X, **states()}, **own)

    close(found, evaluated("lstm", {"x": X, **states()}, **own, bias=bias * 0))


@pytest.mark.parametrize("limit", [0.05, 100.0])
def test_clip_is_refused_where_it_does_something(evaluated: Evaluated, limit: float) -> None:
    arguments = {**weights(4), "clip": np.float32(limit)}
    if limit < 1:
        with pytest.raises(UnverifiableError, match="clip"):
            evaluated("lstm", {"x": X, **states()}, **arguments)
    else:
        plain = evaluated("lstm", {"x": X, **states()}, **weights(4))
        close(evaluated("lstm", {"x": X, **states()}, **arguments), plain)


@pytest.mark.parametrize(
    ("cell_activation", "z", "c", "limit"),
    [
        ("relu", -2.0, 0.0, 0.7),
        # Of 0.9 hard_sigmoid makes 0.68, of 0.6 0.62; no input gate lets either through.
        ("hard_sigmoid", 0.9, 0.0, 0.7),
        ("hard_sigmoid", 0.6, 0.0, 0.61),
        ("linear", 0.0, 2.0, 0.7),
    ],
)
def test_clip_may_mean_the_gate_before_or_after_its_activation_or_the_cell(
    direct: Evaluated, cell_activation: str, z: float, c: float, limit: float
) -> None:
    """One unit without weights: input and forget gates of 1, a cell gate of z, a state of c."""
    given = {
        **{"x": torch.zeros(1, 1, 1), "initial_h": torch.zeros(1, 1)},
        **{"initial_c": torch.full((1, 1), c), "cell_activation": cell_activation},
        **{"weight_ih": torch.zeros(4, 1), "weight_hh": torch.zeros(4, 1)},
        **{"bias": torch.tensor([20, 20, 0, z])},
    }
    if cell_activation == "hard_sigmoid":
        given["bias"] = torch.tensor([-20, 20, 0, z])

    with pytest.raises(UnverifiableError, match="clip"):
        direct("lstm", {**given, "clip": torch.tensor(limit)})


@pytest.mark.parametrize("kind", ["lstm", "rnn", "gru"])
def test_the_sequence_of_a_reverse_layer_is_refused(evaluated: Evaluated, kind: str) -> None:
    gates = {"lstm": 4, "rnn": 1, "gru": 3}[kind]
    given = states() if kind == "lstm" else {"initial_h": 0 * states()["initial_h"]}
    options = {"direction": "reverse", "output_sequence": True, **weights(gates)}
    if kind == "gru":  # both ways to read its reset gate agree
        options["weight_hh"] = 0 * options["weight_hh"]

    assert evaluated(kind, {"x": X[:1], **given}, **options)[0].shape == (1, BATCH, HIDDEN)
    with pytest.raises(UnverifiableError, match="order of its input"):
        evaluated(kind, {"x": X, **given}, **options)


@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
def test_float16_states_are_rounded_at_every_step(
    evaluated: Evaluated, accumulate: torch.dtype
) -> None:
    halves = {key: value.astype(np.float16) for key, value in {"x": X, **states()}.items()}
    own = {key: value.astype(np.float16) for key, value in weights(4).items()}
    out, h, c = reference(torch_lstm())

    found = evaluated("lstm", halves, opset=7, accumulate=accumulate, **own, output_sequence=True)

    assert {value.dtype for value in found} == {torch.float16}
    close(found, (out, h, c), 5e-3)


def test_long_sums_of_float16_depend_on_the_accumulator(evaluated: Evaluated) -> None:
    x = noise(1, 1, 1500).astype(np.float16)
    own = {
        "weight_ih": noise(4, 1500, seed=1).astype(np.float16),
        "weight_hh": noise(4, 4, seed=2).astype(np.float16),
    }
    given = {"x": x, "initial_h": np.zeros((1, 4), np.float16)}

    exact, rough = (
        evaluated("rnn", given, accumulate=dtype, **own, activation="linear")[0]
        for dtype in (torch.float32, torch.float16)
    )

    assert not torch.equal(exact, rough)
    close([exact, rough], [(wide(x[0]) @ wide(own["weight_ih"]).T)[None]] * 2, 2e-2)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("sequence", [False, True])
def test_rnn_is_that_of_torch(evaluated: Evaluated, activation: str, sequence: bool) -> None:
    own, h0 = weights(1), states()["initial_h"]
    module = torch.nn.RNN(INPUTS, HIDDEN, nonlinearity=activation).double()
    with torch.no_grad():
        module.weight_ih_l0.copy_(wide(own["weight_ih"]))
        module.weight_hh_l0.copy_(wide(own["weight_hh"]))
        module.bias_ih_l0.copy_(wide(own["bias"]))
        module.bias_hh_l0.zero_()
        out, last = module(wide(X), wide(h0)[None])

    found = evaluated(
        "rnn",
        {"x": X, "initial_h": h0},
        **own,
        activation=activation,
        output_sequence=sequence,
    )

    close(found, (out if sequence else out[-1:], last[0]))


def test_rnn_spells_its_hard_sigmoid_both_ways(evaluated: Evaluated) -> None:
    given = {"x": X, "initial_h": states()["initial_h"]}

    found = evaluated("rnn", given, **weights(1), activation="sigmoid_hard")

    close(found, evaluated("rnn", given, **weights(1), activation="hard_sigmoid"))


def test_reverse_rnn(evaluated: Evaluated) -> None:
    h0 = states()["initial_h"]
    turned = {"x": np.ascontiguousarray(X[::-1]), "initial_h": h0}

    found = evaluated("rnn", {"x": X, "initial_h": h0}, **weights(1), direction="reverse")

    close(found, evaluated("rnn", turned, **weights(1)))


def test_gru_where_its_reset_gate_does_not_matter(evaluated: Evaluated) -> None:
    """One step from a state of zeros: h = (1 - z) * tanh(o)."""
    own = weights(3)

    found = evaluated("gru", {"x": X[:1], "initial_h": 0 * states()["initial_h"]}, **own)

    gates = wide(X[0]) @ wide(own["weight_ih"]).T + wide(own["bias"])
    _, o, z = gates.chunk(3, -1)
    expected = (1 - torch.sigmoid(z)) * torch.tanh(o)
    close(found, (expected[None], expected))


def test_gru_keeps_what_the_update_gate_says(evaluated: Evaluated) -> None:
    """Without a recurrent product in the output gate both readings are one, over many steps."""
    own, h = weights(3), wide(states()["initial_h"])
    own["weight_hh"][HIDDEN : 2 * HIDDEN] = 0

    found = evaluated("gru", {"x": X, "initial_h": states()["initial_h"]}, **own)

    for now in wide(X):
        given = now @ wide(own["weight_ih"]).T + wide(own["bias"])
        _, o, z = (given + h @ wide(own["weight_hh"]).T).chunk(3, -1)
        h = (1 - torch.sigmoid(z)) * torch.tanh(o) + torch.sigmoid(z) * h
    close(found, (h[None], h))


@pytest.mark.parametrize("reset_after", [None, False, True])
def test_gru_is_refused_where_its_reset_gate_matters(
    evaluated: Evaluated, reset_after: bool | None
) -> None:
    options = {} if reset_after is None else {"reset_after": reset_after}

    with pytest.raises(UnverifiableError, match="reset gate"):
        evaluated("gru", {"x": X, "initial_h": states()["initial_h"]}, **weights(3), **options)


def test_a_second_bias_of_gru_is_refused(evaluated: Evaluated) -> None:
    given = {"x": X[:1], "initial_h": 0 * states()["initial_h"]}
    bias = noise(3 * HIDDEN)

    assert evaluated("gru", given, **weights(3), input_bias=bias * 0)[1].shape == (BATCH, HIDDEN)
    with pytest.raises(UnverifiableError, match="input_bias"):
        evaluated("gru", given, **weights(3), input_bias=bias)


def tensors(kind: str, **changes: Any) -> dict[str, Any]:
    gates = {"lstm": 4, "rnn": 1, "gru": 3}[kind]
    given = {"x": X, **states(), **weights(gates)}
    if kind != "lstm":
        del given["initial_c"]
    return {**{key: torch.from_numpy(value) for key, value in given.items()}, **changes}


@pytest.mark.parametrize("kind", ["lstm", "rnn", "gru"])
@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "scaled_tanh"},
        {"activation": "gelu"},
        {"direction": "backward"},
        {"x": torch.zeros(0, BATCH, INPUTS)},
    ],
)
def test_what_is_not_documented_is_refused(
    direct: Evaluated, kind: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnverifiableError):
        direct(kind, tensors(kind, **changes))


@pytest.mark.parametrize("kind", ["lstm", "rnn", "gru"])
def test_float16_is_refused_before_ios17(direct: Evaluated, kind: str) -> None:
    halves = {key: value.half() for key, value in tensors(kind).items()}

    with pytest.raises(UnverifiableError, match="float16"):
        direct(kind, halves, opset=6)


@pytest.mark.parametrize("kind", ["lstm", "rnn", "gru"])
@pytest.mark.parametrize(
    "changes",
    [
        {"x": torch.zeros(BATCH, INPUTS)},
        {"initial_h": torch.zeros(BATCH, HIDDEN + 1)},
        {"initial_h": torch.zeros(1, HIDDEN)},
        {"weight_ih": torch.zeros(HIDDEN, INPUTS + 1)},
        {"weight_hh": torch.zeros(HIDDEN + 1, HIDDEN)},
        {"bias": torch.zeros(HIDDEN + 1)},
    ],
)
def test_shapes_that_do_not_fit_are_damage(
    direct: Evaluated, kind: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(InputFileError, match="damaged"):
        direct(kind, tensors(kind, **changes))


def test_a_missing_way_back_is_damage(direct: Evaluated) -> None:
    given = {key: torch.from_numpy(value) for key, value in states(2).items()}

    with pytest.raises(InputFileError, match="weight_ih_back is missing"):
        direct("lstm", tensors("lstm", direction="bidirectional", **given))


def test_a_peephole_of_another_size_is_damage(direct: Evaluated) -> None:
    with pytest.raises(InputFileError, match="peephole"):
        direct("lstm", tensors("lstm", peephole=torch.zeros(HIDDEN)))


def test_weights_of_the_way_back_are_not_used_forward(direct: Evaluated) -> None:
    back = {f"{k}_back": torch.from_numpy(v) for k, v in weights(4, seed=20).items()}

    found = direct("lstm", tensors("lstm", **back))

    assert torch.equal(found, direct("lstm", tensors("lstm")))
