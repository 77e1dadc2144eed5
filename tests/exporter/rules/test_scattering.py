"""Rules for writing by index, mask and segment compute what the operators do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules import scattering
from isomorph.exporter.rules.embedding import EMBEDDING_RULES
from isomorph.exporter.rules.scattering import SCATTER_RULES
from isomorph.targets.base import Signature
from isomorph.targets.coreml.target import CoreMlOptions, CoreMlTarget
from torch import Tensor, nn

aten = torch.ops.aten
RULES = {**SCATTER_RULES, **EMBEDDING_RULES}
# Runtimes have these, where sizes fit.
PLAIN = {aten.scatter_add.default, aten.scatter.src, aten.scatter.value}
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(4, 5, 3, generator=GENERATOR)
ROWS = torch.randn(6, 5, 3, generator=GENERATOR)
AT = torch.tensor([2, 0, 2, 3, 2, 0])
ONCE = torch.tensor([3, 1])
SPREAD = torch.randint(0, 4, (6, 4, 3), generator=GENERATOR)
MASK = torch.rand(4, 5, 3, generator=GENERATOR) > 0.4
MATRIX = MASK[:, :, 0]
HITS = torch.rand(2, 6, 4, generator=GENERATOR) > 0.4
NUMBER = torch.tensor(1.5)

Example = tuple[Callable[..., Any], tuple[Tensor, ...]]


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def rewritten(function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    program = flat_program(isomorph.trace(Calls(function), args=tensors))
    names = {n.target for n in program.graph.nodes}
    assert names & set(RULES) or not all(_is_plain(n) for n in program.graph.nodes)
    legalize(program, lambda node: node.target not in RULES and _is_plain(node), RULES, decompose)
    assert not {n.target for n in program.graph.nodes} & (set(RULES) - PLAIN)
    with torch.no_grad():
        return list(torch.fx.Interpreter(program.graph_module).run(*tensors))


def _is_plain(node: Any) -> bool:
    """Not one of those that torch itself writes in the operators under test."""
    return "embedding_bag" not in str(node.target) and "repeat_interleave" not in str(node.target)


def _scatter_reduce(reduce: str, whole: bool) -> Example:
    return (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, reduce, include_self=whole),
        (X, SPREAD, ROWS),
    )


def _index_reduce(reduce: str, whole: bool) -> Example:
    return (
        lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=whole),
        (X, AT, ROWS),
    )


def _put_at(indices: Callable[..., tuple[Any, ...]], values: Tensor, *given: Tensor) -> Example:
    def function(x: Tensor, v: Tensor, *places: Tensor) -> Tensor:
        return aten.index_put.default(x, list(indices(*places)), v, True)

    return function, (X, values, *given)


def _bag(mode: str, **more: Any) -> Example:
    def function(w: Tensor, i: Tensor, o: Tensor) -> Tensor:
        return F.embedding_bag(i, w, o, mode=mode, **more)

    return function, (X[:, :, 0], AT, torch.tensor([0, 2, 2, 5]))


def _segments(reduce: str, initial: float | None, kind: str) -> Example:
    axis, data, given = 1, X, torch.tensor([[0, 3, 2], [1, 4, 0], [5, 0, 0], [2, 2, 1]])
    if kind == "first":
        axis, data, given = 0, ROWS, torch.tensor([2, 0, 3, 1])
    name = "lengths"
    if kind == "offsets":
        name = "offsets"
        given = torch.cat([torch.zeros_like(given[:, :1]), given.cumsum(1)], 1)

    def function(x: Tensor, at: Tensor) -> Tensor:
        more: Any = {name: at}
        return torch.segment_reduce(x, reduce, axis=axis, initial=initial, unsafe=True, **more)

    return function, (data, given)


REDUCTIONS = [(r, w) for r in ("sum", "mean", "prod", "amax", "amin") for w in (True, False)]
EXAMPLES: dict[str, Example] = {
    **{f"scatter_reduce_{r}_{w}": _scatter_reduce(r, w) for r, w in REDUCTIONS},
    **{f"index_reduce_{r}_{w}": _index_reduce(r, w) for r, w in REDUCTIONS if r != "sum"},
    **{
        f"segment_{r}_{i}_{k}": _segments(r, i, k)
        for r in ("sum", "mean", "prod", "max", "min")
        for i in (None, 0.5)
        for k in ("first", "lengths", "offsets")
        if k == "lengths" or (r == "max" and i is None)
    },
    "scatter_reduce_of_a_number": (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "amax"),
        (NUMBER, torch.tensor(0), torch.tensor(2.0)),
    ),
    "scatter_reduce_last": (
        lambda x, i, s: torch.scatter_reduce(x, -1, i, s, "amin", include_self=False),
        (X, torch.randint(0, 3, (2, 3, 7), generator=GENERATOR), torch.randn(4, 5, 7)),
    ),
    "scatter_add_short": (
        lambda x, i, s: x.scatter_add(0, i, s),
        (X, SPREAD[:, :2], ROWS),
    ),
    "scatter_reduce_short": (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "sum", include_self=False),
        (X, SPREAD[:, :2, :2], ROWS),
    ),
    "scatter_mean_short": (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "mean"),
        (X, SPREAD[:, :2, :2], ROWS),
    ),
    "scatter_short": (lambda x, i, s: x.scatter(0, i, s), (X, ONCE.reshape(2, 1, 1), ROWS)),
    "scatter_value_short": (lambda x, i: x.scatter(-1, i, 0.5), (X, ONCE.reshape(2, 1, 1) - 1)),
    "scatter_reduce_integers": (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "amax", include_self=False),
        (torch.zeros(4).long(), AT, torch.arange(-6, 0)),
    ),
    "scatter_reduce_infinite": (
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "sum", include_self=False),
        (torch.full((4,), torch.inf), AT, torch.ones(6)),
    ),
    "index_add": (lambda x, i, s: x.index_add(0, i, s, alpha=-2), (X, AT, ROWS)),
    "index_add_last": (
        lambda x, i, s: x.index_add(-1, i, s),
        (X, torch.tensor([2, 2]), torch.ones(4, 5, 2)),
    ),
    "index_add_number": (
        lambda x, i, s: x.index_add(0, i, s, alpha=3),
        (NUMBER, torch.tensor([0]), NUMBER + 1),
    ),
    "index_copy": (lambda x, i, s: x.index_copy(0, i, s), (X, ONCE, ROWS[:2])),
    "index_copy_number": (
        lambda x, i, s: x.index_copy(0, i, s),
        (NUMBER, torch.tensor([0]), NUMBER + 1),
    ),
    "index_fill": (lambda x, i: x.index_fill(1, i, 2.5), (X, torch.tensor([-1, 2, 2]))),
    "index_fill_tensor": (lambda x, i, v: x.index_fill(-1, i, v), (X, ONCE[1:], NUMBER)),
    "index_put_first": _put_at(lambda i: (i,), ROWS, AT),
    "index_put_slices": _put_at(lambda i: (None, i), X[:, :1].expand(4, 6, 3), AT - 1),
    "index_put_two": _put_at(lambda i, j: (i, j), ROWS[:, 0], AT, AT % 3),
    "index_put_apart": _put_at(lambda i, j: (i, None, j), ROWS[:, :, 0], AT, AT % 3),
    "index_put_matrix": _put_at(lambda i: (None, None, i), NUMBER, SPREAD[:, :, 0] % 3),
    "index_put_mask": _put_at(lambda m: (m,), NUMBER, MASK),
    "index_put_mask_rows": _put_at(lambda m: (m,), X[0, 0], MATRIX),
    "index_put_mask_one": _put_at(lambda m: (m,), X[0, :1], MATRIX),
    "index_put_mask_each": _put_at(
        lambda m: (m,), torch.randn(int(MATRIX.sum()), 3, generator=GENERATOR), MATRIX
    ),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), (X, MASK, ROWS)),
    "masked_scatter_broadcast": (lambda x, m, s: x.masked_scatter(m, s), (X, MATRIX[..., None], X)),
    "masked_fill": (lambda x, m: torch.masked_fill(x, m, -3), (X[0, 0], MASK)),
    "masked_fill_tensor": (lambda x, m, v: torch.masked_fill(x, m, v), (X, MASK[0], NUMBER)),
    "put": (lambda x, i, s: x.put(i, s), (X, torch.tensor([[-1, 7]]), ROWS[0, :1, :2])),
    "put_more": (lambda x, i, s: x.put(i, s, True), (X, AT - 3, ROWS[:, 0, 0])),
    "select_scatter": (lambda x, s: torch.select_scatter(x, s, -1, -2), (X, X[..., 0])),
    "select_scatter_number": (lambda x, s: torch.select_scatter(x, s, 0, 2), (X[0, 0], NUMBER)),
    "nonzero": (lambda m: torch.nonzero_static(m, size=70, fill_value=-7), (MASK,)),
    "nonzero_cut": (lambda m: torch.nonzero_static(m, size=5), (MATRIX.float(),)),
    "masked_index": (
        lambda x, m, i, j: aten._unsafe_masked_index(x, m, [i, None, j], 0.25),
        (X, HITS[0, :, :1].expand(6, 5), AT * 3, AT - 1),
    ),
    "masked_index_put": (
        lambda x, m, i, v: aten._unsafe_masked_index_put_accumulate(x, m, [i], v),
        (X, (AT > 0)[:, None, None].expand(6, 5, 3), AT * 2 - 1, ROWS),
    ),
    "repeats": (
        lambda x, r: torch.repeat_interleave(x, r, 0, output_size=7),
        (X, torch.tensor([2, 0, 4, 1])),
    ),
    "bag_sum": _bag("sum"),
    "bag_mean": _bag("mean"),
    "bag_max": _bag("max"),
    "bag_padded": _bag("mean", padding_idx=2),
    "bag_max_padded": _bag("max", padding_idx=2),
    "bag_last_offset": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="sum", include_last_offset=True),
        (X[:, :, 0], AT, torch.tensor([0, 2, 2, 6])),
    ),
    "bag_weights": (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        (X[:, :, 0], AT, torch.tensor([0, 4]), ROWS[:, 0, 0]),
    ),
    "bag_of_rows": (
        lambda w, i: F.embedding_bag(i, w, mode="max"),
        (X[:, :, 0], AT.reshape(2, 3)),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_comes_out(name: str) -> None:
    function, tensors = EXAMPLES[name]
    (found,) = rewritten(function, tensors)
    torch.testing.assert_close(found, function(*tensors), equal_nan=True)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0])
def test_only_rows_in_use_are_kept_short(norm: float) -> None:
    weight = X[:, :, 0]
    given = (weight, torch.tensor([[1, 3], [1, 1]]))
    found = rewritten(lambda w, i: aten.embedding_renorm(w, i, 0.75, norm), given)
    wanted = aten.embedding_renorm(*given, 0.75, norm)
    assert not torch.equal(wanted, weight)
    torch.testing.assert_close(found, [wanted])


def test_more_pairs_than_the_limit_stay_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "_LIMIT", 100)
    function, tensors = EXAMPLES["scatter_reduce_amax_True"]
    program = flat_program(isomorph.trace(Calls(function), args=tensors))
    legalize(program, lambda node: node.target not in RULES, RULES)
    assert aten.scatter_reduce.two in {n.target for n in program.graph.nodes}


@pytest.mark.parametrize(
    "name",
    [
        *("scatter_reduce_prod_False", "scatter_reduce_last", "index_reduce_mean_False"),
        *("index_add_last", "index_put_apart", "index_put_mask_each", "masked_scatter"),
        *("segment_max_None_lengths", "nonzero_cut", "masked_index_put", "bag_max_padded"),
        *(
            "scatter_add_short",
            "scatter_mean_short",
            "scatter_reduce_short",
            "scatter_short",
            "scatter_value_short",
        ),
        *("put_more", "masked_fill", "select_scatter_number", "repeats"),
    ],
)
def test_core_ml_computes_it(name: str, tmp_path: Path) -> None:
    function, tensors = EXAMPLES[name]
    target = CoreMlTarget()
    graph = isomorph.trace(Calls(function), args=tensors)
    artifact = target.convert(graph, CoreMlOptions(), tmp_path, "model")
    session = target.open(artifact.path, signature=Signature(artifact.inputs, artifact.outputs))
    names = [spec.name for spec in session.inputs]
    feed = {name: t.contiguous().numpy() for name, t in zip(names, tensors, strict=True)}
    (found,) = session.run(feed).values()
    wanted = function(*tensors)
    torch.testing.assert_close(torch.from_numpy(found).to(wanted.dtype), wanted, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.vector_norm(x, 0, dim=1),
        lambda x: x.sum((0, 1, 2), keepdim=True).reshape([]) + 1,
        lambda x: torch.logsumexp(x.mean(), []) * 2,
    ],
)
def test_numbers_stay_numbers(function: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    target = CoreMlTarget()
    graph = isomorph.trace(Calls(function), args=(X,))
    artifact = target.convert(graph, CoreMlOptions(), tmp_path, "model")
    session = target.open(artifact.path, signature=Signature(artifact.inputs, artifact.outputs))
    (found,) = session.run({session.inputs[0].name: X.numpy()}).values()
    wanted = function(X)
    torch.testing.assert_close(torch.from_numpy(found).reshape(wanted.shape), wanted)
