"""The flat network as nested blocks: order, what is left out, what is freed, contradictions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import ConversionError, UnverifiableError
from isomorph.targets.tensorrt.evaluate import interpreter
from isomorph.targets.tensorrt.evaluate.blocks import Block, Conditional, Loop
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from isomorph.targets.tensorrt.evaluate.nesting import blocks_of
from isomorph.targets.tensorrt.evaluate.network import Layer, Network, Tensor

Evaluated = Callable[..., Any]


def tensor(name: str, dtype: str = "float32", shape: tuple[int, ...] = (2,)) -> Tensor:
    return Tensor(name, dtype, shape)


def layer(
    kind: str, inputs: str, outputs: str, group: str | None = None, /, **attributes: Any
) -> Layer:
    names = tuple(inputs.split()), tuple(map(tensor, outputs.split()))
    return Layer(kind, f"{kind} of {outputs}", "", *names, attributes, group)


def add(inputs: str, output: str) -> Layer:
    return layer("ELEMENTWISE", inputs, output, op="SUM")


def network(layers: list[Layer], outputs: str) -> Network:
    return Network(
        (tensor("x"), tensor("yes", "bool", ()), tensor("n", "int32", ())),
        tuple(map(tensor, outputs.split())),
        tuple(layers),
    )


def run(layers: list[Layer], outputs: str, yes: bool = True, n: int = 3) -> dict[str, Any]:
    feed = {"x": torch.ones(2), "yes": torch.tensor(yes), "n": torch.tensor(n, dtype=torch.int32)}
    found = run_network(network(layers, outputs), feed)
    return {name: value.tolist() for name, value in found.items()}


def loop(number: int, start: str, body: list[Layer], following: str, output: str) -> list[Layer]:
    """`following` is the next value of the recurrence that `body` sees as r0, r1..."""
    group = f"loop {number} same name"
    return [
        Layer("TRIP_LIMIT", "limit", "", ("n",), (), {"kind": "COUNT"}, group),
        layer("RECURRENCE", f"{start} {following}", f"r{number}", group),
        *body,
        layer("LOOP_OUTPUT", f"r{number}", output, group, kind="LAST_VALUE", axis=0),
    ]


def conditional(taken: str, other: str, output: str) -> list[Layer]:
    group = "conditional 9 if"
    return [
        Layer("CONDITION", "condition", "", ("yes",), (), {}, group),
        layer("CONDITIONAL_OUTPUT", f"{taken} {other}", output, group),
    ]


def test_layers_are_computed_in_whatever_order_they_come() -> None:
    layers = [add("x x", "a"), add("a x", "b"), add("b a", "c")]
    for order in itertools.permutations(layers):
        assert run(list(order), "c a") == {"c": [5.0, 5.0], "a": [2.0, 2.0]}


def test_a_chain_of_thousands_of_layers() -> None:
    layers = [add(f"t{i} x" if i else "x x", f"t{i + 1}") for i in range(5000)]
    assert run(layers[::-1], "t5000") == {"t5000": [5001.0, 5001.0]}


def test_what_no_output_needs_is_left_out() -> None:
    layers = [add("x x", "a"), layer("UNHEARD_OF", "a", "b"), add("b x", "c")]
    assert run(layers, "a") == {"a": [2.0, 2.0]}
    with pytest.raises(UnverifiableError, match="UNHEARD_OF"):
        run(layers, "c")


def test_values_are_freed_after_their_last_use() -> None:
    """Of a chain with one value that is used again at its end, at most three are held."""
    layers = [add(f"t{i} x" if i else "x x", f"t{i + 1}") for i in range(20)]
    held = []

    class Run(interpreter._Run):
        def _layer(self, layer: Layer) -> None:
            held.append(len(self.values))
            super()._layer(layer)

    running = Run(100)
    running.values = {"x": torch.ones(2)}
    running.block(blocks_of(network([*layers, add("t20 t1", "end")], "end")))
    assert max(held) == 3
    assert set(running.values) == {"x", "end"}


@pytest.mark.parametrize("limit", ["COUNT", "WHILE"])
def test_nothing_of_loops_and_branches_is_left(limit: str) -> None:
    """Also where the condition ends a trip that has begun."""
    second = layer("RECURRENCE", "x more", "r", "loop 0 same name")
    body = [second, *conditional("more", "r0", "next"), add("r0 r", "more")]
    layers = loop(0, "x", body, "next", "out")
    if limit == "WHILE":
        until = replace(layers[0], inputs=("go",), attributes={"kind": "WHILE"})
        below = Layer("IDENTITY", "below", "", ("no",), (tensor("go", "bool", ()),))
        layers = [until, below, *layers[1:]]
    running = interpreter._Run(100)
    given = {"x": torch.ones(2), "yes": torch.tensor(True), "no": torch.tensor(False)}
    running.values = {**given, "n": torch.tensor(3, dtype=torch.int32)}
    running.block(blocks_of(network(layers, "out")))
    left = set(running.values) - {*given, "n"}
    assert left <= {"out", "go"}


def test_a_loop_holds_only_what_depends_on_it() -> None:
    body = [add("x x", "once"), add("r0 once", "next")]
    layers = loop(0, "x", body, "next", "out")
    block = blocks_of(network(layers, "out"))
    assert [names(block), names(the(Loop, block).body)] == [["once"], ["next"]]
    assert run(layers, "out") == {"out": [7.0, 7.0]}
    assert run(layers, "out", n=0) == {"out": [1.0, 1.0]}


def test_loops_in_loops() -> None:
    """What the inner one computes from the outer's value only stands between them."""
    inner = [add("r0 x", "between"), add("r1 between", "inmost")]
    layers = loop(0, "x", loop(1, "r0", inner, "inmost", "in_out"), "in_out", "out")
    outer = the(Loop, blocks_of(network(layers, "out"))).body
    assert names(outer) == ["between"]
    assert names(the(Loop, outer).body) == ["inmost"]
    value = 1.0
    for _ in range(3):
        value = value + 3 * (value + 1.0)
    assert run(layers[::-1], "out") == {"out": [value, value]}


def test_an_inner_loop_that_the_outer_does_not_change_runs_once() -> None:
    inner = loop(1, "x", [add("r1 x", "inmost")], "inmost", "in_out")
    layers = loop(0, "x", [*inner, add("r0 in_out", "next")], "next", "out")
    block = blocks_of(network(layers, "out"))
    assert [type(step) for step in block.steps] == [Loop, Loop]
    assert run(layers, "out") == {"out": [13.0, 13.0]}


def test_only_the_branch_that_is_taken_is_computed() -> None:
    layers = [
        *conditional("taken", "unheard", "out"),
        add("x x", "shared"),
        add("shared x", "taken"),
        layer("UNHEARD_OF", "shared", "unheard"),
    ]
    step = the(Conditional, blocks_of(network(layers, "out")))
    assert [names(step.taken), names(step.other)] == [["taken"], ["unheard"]]
    assert run(layers, "out") == {"out": [3.0, 3.0]}
    with pytest.raises(UnverifiableError, match="UNHEARD_OF"):
        run(layers, "out", yes=False)


def test_what_is_read_outside_a_branch_too_is_outside() -> None:
    layers = [*conditional("a", "x", "out"), add("x x", "a"), add("a x", "b")]
    block = blocks_of(network(layers, "out b"))
    assert names(block) == ["a", "b"]
    assert run(layers, "out b", yes=False) == {"out": [1.0, 1.0], "b": [3.0, 3.0]}


def test_a_conditional_in_a_loop_and_a_loop_in_a_branch() -> None:
    body = [*conditional("more", "r0", "next"), add("r0 x", "more")]
    layers = loop(0, "x", body, "next", "out")
    assert run(layers, "out") == {"out": [4.0, 4.0]}
    assert run(layers, "out", yes=False) == {"out": [1.0, 1.0]}
    inner = loop(0, "x", [add("r0 x", "next")], "next", "looped")
    layers = [*inner, *conditional("looped", "x", "out")]
    step = the(Conditional, blocks_of(network(layers, "out")))
    assert [type(each) for each in step.taken.steps] == [Loop]
    assert run(layers, "out") == {"out": [4.0, 4.0]}


def test_contradictions() -> None:
    with pytest.raises(ConversionError, match="depends on itself"):
        run([add("b x", "a"), add("a x", "b")], "b")
    escaping = loop(0, "x", [add("r0 x", "next")], "next", "out")
    with pytest.raises(ConversionError, match="outside its loop"):
        run([*escaping, add("next out", "end")], "end")
    with pytest.raises(ConversionError, match="nothing makes"):
        run([add("x nothing", "a")], "a")
    with pytest.raises(ConversionError, match="declares"):
        run([Layer("IDENTITY", "i", "", ("x",), (tensor("y", shape=(3,)),))], "y")


def test_properties_that_nobody_knows_are_refused() -> None:
    """Of plain layers and of the boundaries of loops and conditionals."""
    plain = [layer("IDENTITY", "x", "y")]
    looping = loop(0, "x", [add("r0 x", "next")], "next", "y")
    branching = [*conditional("a", "x", "y"), add("x x", "a")]
    for layers in (plain, looping, branching):
        assert run(layers, "y")
        for index, each in enumerate(layers):
            other = replace(each, attributes={**each.attributes, "new": 1})
            with pytest.raises(UnverifiableError, match="attribute new is not known"):
                run([other if i == index else x for i, x in enumerate(layers)], "y")


def test_assertions_are_computed_though_nothing_reads_them(evaluated: Evaluated) -> None:
    def build(net: Any, x: Any, ok: Any) -> Any:
        net.add_assertion(ok, "must hold")
        return net.add_identity(x).get_output(0)

    x = torch.ones(2)
    assert torch.equal(evaluated(build, x, torch.tensor([True, True])), x)
    with pytest.raises(ConversionError, match="must hold"):
        evaluated(build, x, torch.tensor([True, False]))


def test_an_assertion_in_a_loop_is_refused(evaluated: Evaluated) -> None:
    def build(net: Any, x: Any, n: Any) -> Any:
        turns = net.add_loop()
        turns.add_trip_limit(n, trt.TripLimit.COUNT)
        value = turns.add_recurrence(x)
        net.add_assertion(value.get_output(0), "in a loop")
        value.set_input(1, net.add_unary(value.get_output(0), trt.UnaryOperation.NOT).get_output(0))
        return turns.add_loop_output(value.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)

    with pytest.raises(UnverifiableError, match="assertion"):
        evaluated(build, torch.tensor([True]), torch.tensor(2, dtype=torch.int32))


def the(kind: type[Any], block: Block) -> Any:
    (found,) = (step for step in block.steps if isinstance(step, kind))
    return found


def names(block: Block) -> list[str]:
    """Outputs of the plain layers of a block."""
    return [step.outputs[0].name for step in block.steps if isinstance(step, Layer)]
