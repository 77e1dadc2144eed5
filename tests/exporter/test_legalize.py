"""Rewrites keep what is computed and where it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.graph import Graph, node_origin
from isomorph.exporter.legalize import drop_checks, legalize
from torch import Tensor, nn

aten = torch.ops.aten


class Calls(nn.Module):
    """A module that calls a function, with the layers the function needs."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Any:
        return self.function(*self.layers, x)


def graph_of(function: Callable[..., Any], x: Tensor, *layers: nn.Module) -> Graph:
    return isomorph.trace(Calls(function, *layers).eval(), args=(x,))


def lacks_everything(node: torch.fx.Node) -> bool:
    return False


def has_everything(node: torch.fx.Node) -> bool:
    return True


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def run(program: torch.export.ExportedProgram, x: Tensor) -> Any:
    values = [
        x if node.name in program.graph_signature.user_inputs else None
        for node in program.graph.nodes
        if node.op == "placeholder"
    ]
    weights = {
        spec.arg.name: program.state_dict.get(spec.target, program.constants.get(spec.target))
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    holders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    feed = [weights.get(name, value) for name, value in zip(holders, values, strict=True)]
    with torch.no_grad():
        return torch.fx.Interpreter(program.graph_module).run(*feed)


X = torch.randn(2, 4, 12, 10, generator=torch.Generator().manual_seed(0))

CASES: dict[str, tuple[Any, ...]] = {
    "relu_": (lambda x: (x + 1).relu_(),),
    "chain": (lambda x: (x * 1).add_(x, alpha=3).mul_(2).clamp_(-1, 2),),
    "dropout": (lambda d, x: d(x) + 1, nn.Dropout(0.5)),
    "layout": (lambda x: x.transpose(1, 2).contiguous().view(2, -1),),
    "cast": (lambda x: x.to(torch.float64).to(torch.float64),),
    "batch_norm": (lambda b, x: b(x), nn.BatchNorm2d(4)),
    "flatten": (lambda x: x.transpose(1, 3).flatten(1).unflatten(1, (4, -1)),),
    "pool_to_one": (lambda x: F.adaptive_avg_pool2d(x, 1),),
    "pool_divisible": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)),),
    "pool_1d": (lambda x: F.adaptive_avg_pool1d(x[0], 5),),
    "max_pool_to_one": (lambda x: F.adaptive_max_pool2d(x, 1),),
    "max_pool_divisible": (lambda x: F.adaptive_max_pool2d(x, (3, 5)),),
    "divisor": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),),
    "divisor_uncounted": (lambda x: F.avg_pool2d(x, 3, 2, 1, False, False, 5),),
    "divisor_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),),
    "rrelu": (lambda x: F.rrelu(x, 0.1, 0.4),),
    "masked_select": (lambda x: x.masked_select(x > 0),),
    "narrow_index": (lambda x: x[:, torch.tensor([0, -1], dtype=torch.int32)],),
    "stable_sort": (lambda x: x.round().sort(dim=1, stable=True, descending=True),),
    "scatter_add": (lambda x: x.scatter(1, (x > 0).long(), x, reduce="add"),),
    "scatter_mean": (
        lambda x: x.scatter_reduce(1, (x > 0).long(), x + 1, "mean", include_self=True),
    ),
    "scatter_mean_without_self": (
        lambda x: x.scatter_reduce(1, (x > 0).long(), x + 1, "mean", include_self=False),
    ),
    "antialias": (lambda x: F.interpolate(x, scale_factor=0.4, mode="bilinear", antialias=True),),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rewritten_program_computes_the_same(name: str) -> None:
    function, *layers = CASES[name]
    graph = graph_of(function, X, *layers)
    expected = run(graph.copy_program(), X)
    program = graph.copy_program()

    assert legalize(program, lacks_everything)

    torch.testing.assert_close(run(program, X), expected)


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("relu_", "aten.relu_.default"),
        ("dropout", "aten.dropout.default"),
        ("layout", "aten.contiguous.default"),
        ("batch_norm", "aten.batch_norm.default"),
        ("pool_to_one", "aten.adaptive_avg_pool2d.default"),
        ("max_pool_to_one", "aten.adaptive_max_pool2d.default"),
        ("rrelu", "aten.rrelu.default"),
        ("stable_sort", "aten.sort.stable"),
    ],
)
def test_lacking_operator_is_gone(name: str, gone: str) -> None:
    function, *layers = CASES[name]
    graph = graph_of(function, X, *layers)
    program = graph.copy_program()
    assert gone in operators(program)

    legalize(program, lacks_everything)

    assert gone not in operators(program)


def test_operator_that_the_target_has_stays() -> None:
    program = graph_of(lambda x: F.adaptive_avg_pool2d(x, 1), X).copy_program()

    legalize(program, has_everything)

    assert operators(program) == ["aten.adaptive_avg_pool2d.default"]


@pytest.mark.parametrize(
    "writes_to_what_is_read_later",
    [
        lambda y: (y.relu_(), y)[0] + y.mean(),
        lambda y: y[:, 0].mul_(2).sum() + y.sum(),
        lambda y: y.view(-1).relu_() + y.flatten(),
    ],
)
def test_write_that_an_alias_reads_is_not_made_functional(
    writes_to_what_is_read_later: Callable[[Tensor], Tensor],
) -> None:
    program = torch.export.export(Calls(lambda x: writes_to_what_is_read_later(x + 0)), (X,))

    functional = legalize(program, has_everything)

    assert not functional or torch.equal(
        run(program, X)[0], writes_to_what_is_read_later(X.clone() + 0)
    )


def test_write_that_would_promote_is_not_made_functional() -> None:
    wide = X.double()
    program = torch.export.export(Calls(lambda x: (x.float() * 1).add_(x)), (wide,))

    assert not legalize(program, has_everything)


def test_replaced_node_keeps_name_module_and_line() -> None:
    graph = graph_of(lambda b, x: b(x) * 2, X, nn.BatchNorm2d(4))
    program = graph.copy_program()
    before = {n.name: node_origin(n) for n in program.graph.nodes if n.op == "call_function"}

    legalize(program, lacks_everything)

    after = {n.name: node_origin(n) for n in program.graph.nodes if n.op == "call_function"}
    assert after["batch_norm"] == before["batch_norm"]
    assert after["batch_norm"].module == "layers.0"
    assert "test_legalize.py:" in after["batch_norm"].location


@pytest.mark.parametrize("function", [lambda x: x.nonzero(), lambda x: x[x > 0] * 2])
def test_checks_on_sizes_that_a_retrace_writes_go(function: Callable[[Tensor], Tensor]) -> None:
    program = graph_of(function, X).copy_program().run_decompositions({})
    assert "aten._assert_scalar.default" in operators(program)

    drop_checks(program)

    left = operators(program)
    assert not any(name in text for text in left for name in ("assert", "built-in", "sym_size"))
    torch.testing.assert_close(run(program, X)[0], function(X))


def test_what_a_check_shares_with_the_result_stays() -> None:
    def function(x: Tensor) -> Tensor:
        found = x[x > 0]
        return found.new_ones(found.shape[0] + 1)

    program = graph_of(function, X).copy_program().run_decompositions({})

    drop_checks(program)

    torch.testing.assert_close(run(program, X)[0], function(X))


def test_the_graph_itself_is_not_touched() -> None:
    graph = graph_of(lambda b, x: b(x).relu_(), X, nn.BatchNorm2d(4))
    before = graph.fingerprint()

    legalize(graph.copy_program(), lacks_everything)

    assert graph.fingerprint() == before
