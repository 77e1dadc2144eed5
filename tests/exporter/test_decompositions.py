"""One node is rewritten as torch decomposes its operator; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.graph import node_origin
from isomorph.exporter.legalize import legalize
from isomorph.exporter.nodes import Editor
from torch import Tensor, nn

aten = torch.ops.aten
BASIC = {
    *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.where.self),
    *(aten.exp.default, aten.log.default, aten.abs.default, aten.full.default),
    *(aten.sum.dim_IntList, aten.scalar_tensor.default, aten.neg.default, aten.eq.Scalar),
    *(aten.lt.Scalar, aten.gt.Scalar, aten.eq.Tensor, aten.ge.Tensor, aten.log1p.default),
    aten.ne.Tensor,
    *(aten.maximum.default, aten.minimum.default, aten.linear.default, aten.select.int),
}  # fmt: skip


class Calls(nn.Module):
    """A layer, then a function of its result."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.layer(x))


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "huber": lambda x: F.huber_loss(x, x * 2),
    "logaddexp": lambda x: torch.logaddexp(x, -x),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "bicubic": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"),
    "two_results": lambda x: torch.aminmax(x, dim=1),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 1:]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rows", [5, 9])
def test_what_takes_a_node_s_place_computes_the_same_at_any_size(name: str, rows: int) -> None:
    torch.manual_seed(0)
    module = Calls(FUNCTIONS[name]).eval()
    graph = isomorph.trace(module, args=(torch.randn(5, 4),), dynamic={"x.0": "rows:4..16"})
    program = flat_program(graph)

    assert legalize(program, lambda node: node.target in BASIC, {}, decompose)

    x = torch.randn(rows, 4)
    holders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    weights = {
        s.arg.name: program.state_dict[s.target]
        for s in program.graph_signature.input_specs
        if s.target is not None
    }
    with torch.no_grad():
        found = torch.fx.Interpreter(program.graph_module).run(
            *(weights.get(holder, x) for holder in holders)
        )
        wanted = torch.utils._pytree.tree_leaves(module(x))
    torch.testing.assert_close(list(found), wanted)


def test_what_was_rewritten_is_gone_however_deep_and_the_rest_untouched() -> None:
    program = flat_program(isomorph.trace(Calls(torch.special.entr), args=(torch.rand(5, 4),)))
    legalize(program, lambda node: node.target in BASIC, {}, decompose)
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert targets <= BASIC
    assert aten.linear.default in targets


def test_new_nodes_keep_the_module_and_the_line_of_the_one_they_replace() -> None:
    graph = isomorph.trace(Calls(FUNCTIONS["huber"]), args=(torch.randn(5, 4),))
    program = flat_program(graph)
    origins = {
        node_origin(node) for node in program.graph.nodes if node.target is aten.huber_loss.default
    }
    legalize(program, lambda node: node.target in BASIC, {}, decompose)
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    assert origins <= {node_origin(node) for node in calls}
    assert all(node_origin(node) for node in calls)


def test_random_operators_and_those_without_a_decomposition_stay() -> None:
    graph = isomorph.trace(Calls(lambda x: torch.linalg.qr(x)[0]), args=(torch.randn(4, 4),))
    program = flat_program(graph)
    (node,) = (n for n in program.graph.nodes if n.target is aten.linalg_qr.default)
    assert decompose(Editor(program.graph), node) is None
