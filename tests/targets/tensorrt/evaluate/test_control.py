"""Loops and conditionals: built by hand, and as the parser makes them of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from isomorph.targets.tensorrt.evaluate import interpreter
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from onnx import TensorProto, helper, numpy_helper

Evaluated = Callable[..., Any]
Arrays = Mapping[str, np.ndarray[Any, Any]]
info = helper.make_tensor_value_info
FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def model(nodes: Any, inputs: Any, outputs: Any, constants: Arrays | None = None) -> Any:
    held = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def agree(parsed: Any, built: onnx.ModelProto, *feeds: Arrays) -> Any:
    """The network agrees with ONNX Runtime on the model; returns the network."""
    session = onnxruntime.InferenceSession(
        built.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    network = parsed(built)
    for feed in feeds:
        given = {name: torch.from_numpy(np.array(value)) for name, value in feed.items()}
        found = run_network(network, given)
        for output, want in zip(built.graph.output, session.run(None, dict(feed)), strict=True):
            np.testing.assert_allclose(
                found[output.name].numpy(), want, rtol=1e-5, atol=1e-6, strict=True
            )
    return network


def numbers(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


# --- ONNX -----------------------------------------------------------------------------------------


def summing(nodes: Any = (), condition: str = "cond") -> Any:
    """A Loop's body: total + x, which is also collected."""
    return helper.make_graph(
        [
            helper.make_node("Add", ["total", "x"], ["more"]),
            helper.make_node("Identity", ["more"], ["seen"]),
            helper.make_node("Identity", ["cond"], ["same"]),
            *nodes,
        ],
        "body",
        [info("i", INT64, []), info("cond", BOOL, []), info("total", FLOAT, [2])],
        [
            info("same" if condition == "cond" else condition, BOOL, []),
            info("more", FLOAT, [2]),
            info("seen", FLOAT, [2]),
        ],
    )


def loop_model(body: Any, **constants: np.ndarray[Any, Any]) -> Any:
    return model(
        [helper.make_node("Loop", ["n", "start", "t"], ["last", "all"], body=body)],
        [info("n", INT64, []), info("x", FLOAT, [2]), info("t", FLOAT, [2])],
        [info("last", FLOAT, [2]), info("all", FLOAT, ["k", 2])],
        {"start": np.array(True), **constants},
    )


def test_a_loop_of_some_and_of_no_trips(parsed: Any) -> None:
    agree(
        parsed,
        loop_model(summing()),
        *({"n": np.array(n), "x": numbers(1, 2), "t": numbers(0, 5)} for n in (0, 1, 4)),
    )


def test_a_loop_that_ends_early_leaves_its_collected_output_open(parsed: Any) -> None:
    """TensorRT's output has as many rows as the count says; later ones are arbitrary."""
    tail = [
        helper.make_node("ReduceSum", ["more"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "limit"], ["below"]),
    ]
    built = loop_model(summing(tail, "below"), limit=np.float32(10))
    feed = {"x": numbers(1, 2), "t": numbers(0, 0)}
    network = agree(parsed, built, {"n": np.array(3), **feed})
    given = {name: torch.from_numpy(np.array(value)) for name, value in feed.items()}
    with pytest.raises(UnverifiableError, match="4 trips, and an output for 9"):
        run_network(network, {"n": torch.tensor(9), **given})
    only_last = tuple(tensor for tensor in network.outputs if tensor.name == "last")
    found = run_network(replace(network, outputs=only_last), {"n": torch.tensor(9), **given})
    assert found["last"].tolist() == [4.0, 8.0]


def test_if(parsed: Any) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [name])], name, [], [info(name, FLOAT, [2])]
        )
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    built = model(
        [helper.make_node("If", ["c"], ["y"], **branches)],
        [info("c", BOOL, []), info("x", FLOAT, [2])],
        [info("y", FLOAT, [2])],
    )
    feeds = ({"c": np.array(yes), "x": numbers(-1, 2)} for yes in (True, False))
    network = agree(parsed, built, *feeds)
    condition = [layer for layer in network.layers if layer.kind == "CONDITIONAL_OUTPUT"]
    swapped = replace(condition[0], inputs=condition[0].inputs[::-1])
    layers = tuple(swapped if each is condition[0] else each for each in network.layers)
    given = {"c": torch.tensor(True), "x": torch.tensor([-1.0, 2.0])}
    assert run_network(replace(network, layers=layers), given)["y"].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("direction", [0, 1])
def test_scan(parsed: Any, direction: int) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["next"]),
            helper.make_node("Mul", ["next", "row"], ["seen"]),
        ],
        "body",
        [info("state", FLOAT, [2]), info("row", FLOAT, [2])],
        [info("next", FLOAT, [2]), info("seen", FLOAT, [2])],
    )
    built = model(
        [
            helper.make_node(
                "Scan",
                ["s", "x"],
                ["last", "all"],
                body=body,
                num_scan_inputs=1,
                scan_input_axes=[1],
                scan_input_directions=[direction],
                scan_output_axes=[1],
                scan_output_directions=[direction],
            )
        ],
        [info("s", FLOAT, [2]), info("x", FLOAT, [2, 4])],
        [info("last", FLOAT, [2]), info("all", FLOAT, [2, 4])],
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    agree(parsed, built, {"s": numbers(1, -1), "x": x})


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_operators(parsed: Any, operator: str, direction: str) -> None:
    """Any length and batch; with lengths per sequence."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    ways = 2 if direction == "bidirectional" else 1
    rng = np.random.default_rng(3)
    weights = {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in (
            ("w", (ways, gates * 2, 3)),
            ("r", (ways, gates * 2, 2)),
            ("b", (ways, gates * 4)),
        )
    }
    built = model(
        [
            helper.make_node(
                operator,
                ["x", "w", "r", "b", "lengths"],
                ["y", "h"],
                hidden_size=2,
                direction=direction,
            )
        ],
        [info("x", FLOAT, ["s", "n", 3]), info("lengths", TensorProto.INT32, ["n"])],
        [info("y", FLOAT, ["s", ways, "n", 2]), info("h", FLOAT, [ways, "n", 2])],
        weights,
    )
    agree(
        parsed,
        built,
        *(
            {"x": rng.standard_normal((steps, count, 3), np.float32), "lengths": lengths}
            for steps, count in ((4, 3), (1, 1))
            for lengths in (np.maximum(1, steps - np.arange(count)).astype(np.int32),)
        ),
    )


# --- By hand --------------------------------------------------------------------------------------


def looped(
    kind: str, axis: int = 0, reverse: bool = False, length: int = 3, along: int = 0
) -> Callable[..., Any]:
    """x is walked along an axis, each part is doubled, and what comes is collected."""

    def build(net: Any, x: Any, n: Any) -> Any:
        turns = net.add_loop()
        turns.add_trip_limit(n, trt.TripLimit.COUNT)
        part = turns.add_iterator(x, axis, reverse).get_output(0)
        twice = net.add_elementwise(part, part, trt.ElementWiseOperation.SUM).get_output(0)
        output = turns.add_loop_output(twice, getattr(trt.LoopOutput, kind), along)
        size = net.add_constant((), np.array([length], np.int32)).get_output(0)
        output.set_input(1, size)
        return output.get_output(0)

    return build


def count(n: int) -> torch.Tensor:
    return torch.tensor(n, dtype=torch.int32)


@pytest.mark.parametrize(
    ("kind", "axis", "reverse", "expected"),
    [
        ("CONCATENATE", 0, False, [0, 1, 2]),
        ("REVERSE", 0, False, [2, 1, 0]),
        ("CONCATENATE", 1, True, [2, 1, 0]),
        ("REVERSE", 1, True, [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("along", [0, 1])
def test_iterators_and_collected_outputs(
    evaluated: Evaluated, kind: str, axis: int, reverse: bool, expected: list[int], along: int
) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    found = evaluated(looped(kind, axis, reverse, along=along), x, count(3))
    parts = [2 * x.select(axis, index) for index in expected]
    assert torch.equal(found, torch.stack(parts, along))


def test_a_reverse_iterator_starts_at_the_count(evaluated: Evaluated) -> None:
    found = evaluated(looped("CONCATENATE", reverse=True, length=2), torch.arange(3.0), count(2))
    assert found.tolist() == [2.0, 0.0]


def test_no_trips(evaluated: Evaluated) -> None:
    found = evaluated(looped("CONCATENATE", length=0), torch.zeros(3, 4), count(0))
    assert found.shape == (0, 4)


@pytest.mark.parametrize(
    ("trips", "length", "why"),
    [(4, 4, "iteration 3"), (2, 3, "2 trips"), (3, 2, "3 trips"), (-1, 3, "-1 trips")],
)
def test_refused_trips(evaluated: Evaluated, trips: int, length: int, why: str) -> None:
    with pytest.raises(UnverifiableError, match=why):
        evaluated(looped("CONCATENATE", length=length), torch.arange(3.0), count(trips))


def test_boundaries_are_seen(seen: Callable[..., bool]) -> None:
    build, inputs = looped("CONCATENATE"), (torch.arange(9.0).reshape(3, 3), count(3))
    assert seen(build, inputs, "ITERATOR", axis=1)
    assert seen(build, inputs, "ITERATOR", reverse=True)
    assert seen(build, inputs, "LOOP_OUTPUT", axis=1)
    assert seen(build, inputs, "LOOP_OUTPUT", kind="REVERSE")
    assert seen(build, inputs, "LOOP_OUTPUT", kind="LAST_VALUE")
    assert seen(build, inputs, "LOOP_OUTPUT", kind="NEW")
    assert seen(build, inputs, "TRIP_LIMIT", kind="NEW")


def doubling(limit: float | None) -> Callable[..., Any]:
    """x is doubled while it is below a limit; without one, without end."""

    def build(net: Any, x: Any) -> Any:
        turns = net.add_loop()
        value = turns.add_recurrence(x)
        held = value.get_output(0)
        twice = net.add_elementwise(held, held, trt.ElementWiseOperation.SUM).get_output(0)
        value.set_input(1, twice)
        bound = net.add_constant((), np.array([limit or np.inf], np.float32)).get_output(0)
        below = net.add_elementwise(held, bound, trt.ElementWiseOperation.LESS)
        turns.add_trip_limit(below.get_output(0), trt.TripLimit.WHILE)
        return turns.add_loop_output(held, trt.LoopOutput.LAST_VALUE).get_output(0)

    return build


def test_while_is_asked_before_each_trip(evaluated: Evaluated) -> None:
    for start, end in ((1.0, 16.0), (20.0, 20.0)):
        assert evaluated(doubling(15), torch.tensor(start)).item() == end


def test_an_endless_loop_ends_unverified(evaluated: Evaluated, monkeypatch: Any) -> None:
    monkeypatch.setattr(interpreter, "_LARGEST_RUN", 1000)
    with pytest.raises(UnverifiableError, match="has not ended after 1000 layers"):
        evaluated(doubling(None), torch.tensor(0.0))


def test_what_a_loop_does_not_change_is_computed_once(
    evaluated: Evaluated, monkeypatch: Any
) -> None:
    def build(net: Any, x: Any, n: Any) -> Any:
        turns = net.add_loop()
        turns.add_trip_limit(n, trt.TripLimit.COUNT)
        value = turns.add_recurrence(x)
        once = net.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
        more = net.add_elementwise(value.get_output(0), once, trt.ElementWiseOperation.SUM)
        value.set_input(1, more.get_output(0))
        return turns.add_loop_output(value.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)

    kinds: list[str] = []
    for kind in ("UNARY", "ELEMENTWISE"):
        operator = interpreter.OPERATORS[kind]
        monkeypatch.setitem(
            interpreter.OPERATORS,
            kind,
            lambda call, run=operator: (kinds.append(call.kind), run(call))[1],
        )
    assert evaluated(build, torch.tensor([2.0]), count(5)).tolist() == [-8.0]
    assert kinds == ["UNARY", *["ELEMENTWISE"] * 5]


def test_a_recurrence_that_changes_its_shape_is_refused(evaluated: Evaluated) -> None:
    def build(net: Any, x: Any, n: Any) -> Any:
        turns = net.add_loop()
        turns.add_trip_limit(n, trt.TripLimit.COUNT)
        value = turns.add_recurrence(x)
        held = value.get_output(0)
        value.set_input(1, net.add_concatenation([held, held]).get_output(0))
        return turns.add_loop_output(held, trt.LoopOutput.LAST_VALUE).get_output(0)

    with pytest.raises(UnverifiableError, match=r"from shape \[2\] to \[4\]"):
        evaluated(build, torch.ones(2), count(1), shapes=[(-1,), ()])
