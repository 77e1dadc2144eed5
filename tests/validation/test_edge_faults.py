"""Faults in written ONNX files that only values at an edge show, and correct files that they spare.

Each fault passes on random, zero, large and tiny values: the edge that finds it is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import isomorph
import onnx
import pytest
import torch
from isomorph.exporter.source import Request, open_source
from isomorph.progress import Silent
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import parity
from isomorph.validation.checking import make_reference
from onnx import TensorProto, helper
from torch import nn

BEFORE = ("normal", "channels_last", "mask-prefix", "mask-suffix", "zeros", "large", "tiny")


class Rounds(nn.Module):
    def forward(self, x):
        return (x * 2.0).relu(), x.round()


class Crosses(nn.Module):
    def forward(self, x):
        return x > 0.5


class TakesTheMaximum(nn.Module):
    def forward(self, x):
        return x.amax(-1)


class Attends(nn.Module):
    def forward(self, x, mask):
        scores = x @ x.transpose(1, 2) + (1.0 - mask[:, None].float()) * -1e4
        return scores.softmax(-1)


class RelativePlaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1999, 4)
        self.places = nn.Embedding(1000, 4)

    def forward(self, ids):
        apart = ids[:, :, None] - ids[:, None] + 999
        return self.table(apart), self.places(ids)


def node_of(model, kind):
    return next(node for node in model.graph.node if node.op_type == kind)


def constant(model, name, value, kind=TensorProto.FLOAT):
    shape = [] if not isinstance(value, list) else [len(value)]
    values = value if isinstance(value, list) else [value]
    model.graph.initializer.append(helper.make_tensor(name, kind, shape, values))
    return name


def instead(model, node, *nodes):
    """Put `nodes`, of which the last gives the node's output, where `node` is."""
    place = list(model.graph.node).index(node)
    model.graph.node.remove(node)
    for new in reversed(nodes):
        model.graph.node.insert(place, new)


def before(model, node, *nodes):
    """Put `nodes` in front of `node`."""
    place = list(model.graph.node).index(node)
    for new in reversed(nodes):
        model.graph.node.insert(place, new)


def halves_go_up(model):
    node = node_of(model, "Round")
    half = constant(model, "half", 0.5)
    instead(
        model,
        node,
        helper.make_node("Add", [node.input[0], half], ["moved"]),
        helper.make_node("Floor", ["moved"], list(node.output)),
    )


def the_threshold_counts(model):
    node_of(model, "Greater").op_type = "GreaterOrEqual"


def padding_is_zero(model):
    """As where a maximum is taken over values and a padding of zeros."""
    node = node_of(model, "ReduceMax")
    (output,) = node.output
    node.output[0] = "maximum"
    place = list(model.graph.node).index(node)
    model.graph.node.insert(place + 1, helper.make_node("Relu", ["maximum"], [output]))


def a_fast_path_is_wrong(model):
    """Where nothing is masked, the first position gets more than its share."""
    node = node_of(model, "Softmax")
    mask = next(value.name for value in model.graph.input if value.name == "mask")
    more = constant(model, "more", [0.3, 0.0, 0.0, 0.0, 0.0])
    scores = node.input[0]
    before(
        model,
        node,
        helper.make_node("Cast", [mask], ["ones"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMin", ["ones"], ["all"], keepdims=0),
        helper.make_node("Mul", ["all", more], ["share"]),
        helper.make_node("Add", [scores, "share"], ["shifted"]),
    )
    node.input[0] = "shifted"


def the_last_place_is_lost(model):
    """A difference of indices is clipped one below the end of its table."""
    node = next(n for n in model.graph.node if n.op_type == "Gather" and "table" in n.input[0])
    top = constant(model, "top", 1997, TensorProto.INT64)
    before(model, node, helper.make_node("Min", [node.input[1], top], ["clipped"]))
    node.input[1] = "clipped"


@dataclass(frozen=True)
class Fault:
    module: Callable[[], nn.Module]
    inputs: tuple[str, ...]
    edit: Callable[[onnx.ModelProto], None]
    kind: str


FAULTS = {
    "rounding": Fault(Rounds, ("x=2x40",), halves_go_up, "halves"),
    "threshold": Fault(Crosses, ("x=2x40",), the_threshold_counts, "halves"),
    "padding of a maximum": Fault(TakesTheMaximum, ("x=3x64",), padding_is_zero, "negative"),
    "mask without padding": Fault(
        Attends, ("x=3x5x8", "mask=3x5:bool"), a_fast_path_is_wrong, "mask-true"
    ),
    "end of a table": Fault(
        RelativePlaces, ("ids=2x6:int64:0..999",), the_last_place_is_lost, "ends"
    ),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The graph, reference and ONNX file of a module."""
    known = {}

    def make(module, inputs):
        if module not in known:
            torch.manual_seed(0)
            source = open_source(module().eval(), Request(inputs=inputs))
            folder = tmp_path_factory.mktemp("edge")
            path = OnnxTarget().convert(source.capture.graph, OnnxOptions(), folder, "m").path
            found = make_reference(source.capture, source.module, (), Silent())
            known[module] = source.capture.graph, found, path
        return known[module]

    return make


def judged(graph, reference, path, **how):
    with OnnxTarget().open(path, **how) as session:
        return parity.judge(graph, reference, session)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_an_edge_is_found_there_and_nowhere_else(written, tmp_path, name):
    fault = FAULTS[name]
    graph, reference, path = written(fault.module, fault.inputs)
    assert judged(graph, reference, path).verdict == "pass"
    model = onnx.load(path)
    fault.edit(model)
    broken = tmp_path / "broken.onnx"
    onnx.save(model, broken)
    report = judged(graph, reference, broken, optimized=False)
    assert report.verdict == "fail"
    assert {case.kind for case in report.cases if case.verdict == "fail"} == {fault.kind}
    assert {case.generator for case in report.cases if case.verdict == "fail"} == {fault.kind}

    usual = replace(
        reference, cases=tuple(case for case in reference.cases if case.generator in BEFORE)
    )
    assert judged(graph, usual, broken, optimized=False).verdict == "pass"


def test_a_wrong_rounding_is_localised(written, tmp_path):
    """On a case of halves, which stay halves while the floor of each operator is measured."""
    _, _, path = written(Rounds, ("x=2x40",))
    model = onnx.load(path)
    halves_go_up(model)
    broken = tmp_path / "broken.onnx"
    onnx.save(model, broken)
    report = isomorph.validate(broken, Rounds(), inputs=["x=2x40"])
    assert report.localization is not None
    assert "first wrong: round" in report.localization.summary
    assert report.localization.case == "halves-0"


class Chooses(nn.Module):
    def forward(self, x, boxes):
        order = x.topk(4, -1)[1]
        best = x.argmax(-1, keepdim=True)
        return boxes.gather(1, order), boxes.gather(1, best)


def test_which_of_equal_values_comes_first_is_no_fault(written, tmp_path):
    """Indices, and floats that were picked by them, where ties may go either way."""
    graph, reference, path = written(Chooses, ("x=3x9", "boxes=3x9"))
    model = onnx.load(path)
    node = node_of(model, "ArgMax")
    (last,) = [a for a in node.attribute if a.name == "select_last_index"]
    last.i = 1
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    report = judged(graph, reference, other)
    assert report.verdict == "pass"
    assert {case.verdict for case in report.cases if case.kind == "ties"} == {"unverified"}


class MayBeNaN(nn.Module):
    def forward(self, x, mask):
        scores = (x @ x.transpose(1, 2)).masked_fill(~mask[:, None], float("-inf"))
        return scores.softmax(-1)


def test_a_number_for_what_is_wholly_masked_is_no_fault(written, tmp_path):
    graph, reference, path = written(MayBeNaN, ("x=3x5x8", "mask=3x5:bool"))
    model = onnx.load(path)
    node = node_of(model, "Softmax")
    (output,) = node.output
    node.output[0] = "maybe_nan"
    zero = constant(model, "nothing", 0.0)
    place = list(model.graph.node).index(node) + 1
    model.graph.node.insert(place, helper.make_node("Where", ["nan", zero, "maybe_nan"], [output]))
    model.graph.node.insert(place, helper.make_node("IsNaN", ["maybe_nan"], ["nan"]))
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    report = judged(graph, reference, other)
    assert report.verdict == "pass"
    found = {case.generator: case.verdict for case in report.cases}
    for name in ("mask-suffix", "mask-false", "mask-row", "zeros"):
        assert found[name] == "unverified", name
    assert found["mask-true"] == found["mask-prefix"] == "pass"
