"""What is rewritten of statistics, scans, orders, distances and norms computes what torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules.linear_algebra import LINALG_RULES
from torch import Tensor, nn
from torch.utils import _pytree as pytree

INF, NAN = float("inf"), float("nan")
_GENERATOR = torch.Generator().manual_seed(0)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def _plain(node: Any) -> bool:
    target = node.target
    composite = isinstance(target, torch._ops.OpOverload) and target._can_decompose()
    return target not in LINALG_RULES and not composite


def leaves(result: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def agrees(function: Callable[..., Any], *tensors: Tensor) -> None:
    program = torch.export.export(Calls(function), tensors)
    legalize(program, _plain, LINALG_RULES, decompose)
    assert [n.name for n in program.graph.nodes if n.target in LINALG_RULES] == []
    found = leaves(torch.fx.Interpreter(program.graph_module).run(*tensors))
    torch.testing.assert_close(
        found, leaves(function(*tensors)), rtol=1e-9, atol=1e-9, equal_nan=True
    )


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=_GENERATOR)


X = normal(3, 4, 5)
SOME_NAN = X.clone()
SOME_NAN[0, 1, 2] = NAN
SOME_NAN[2] = NAN
INFINITE = X.clone()
INFINITE[0, 0, 0] = INF
INFINITE[1, :, 1] = -INF
TIES = torch.tensor([1, 3, 3, NAN, 2, 5, NAN, 5, -INF, INF, INF], dtype=torch.float64)
SCALAR = torch.tensor(1.5, dtype=torch.float64)
VALUES = {"plain": X, "nan": SOME_NAN, "inf": INFINITE, "scalar": SCALAR}
EVERY = {**VALUES, "ties": TIES, "one": TIES[:1], "integers": torch.tensor([2, 1, 2, 3])}


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_variances(name: str) -> None:
    function = getattr(torch, name)
    agrees(function, X)
    agrees(function, SCALAR)  # NaN: one value has no variance
    agrees(lambda x: function(x, dim=1), normal(3, 1))
    agrees(lambda x: function(x, dim=(0, -1), correction=0, keepdim=True), X)
    agrees(lambda x: function(x, dim=1, correction=2.5), X)
    agrees(lambda x: function(x, 1, unbiased=False), X)
    agrees(function, X + 1e6)  # squares of the values themselves would have no digits left


@pytest.mark.parametrize("values", VALUES)
def test_sums_without_nan(values: str) -> None:
    agrees(torch.nansum, VALUES[values])
    agrees(torch.nanmean, VALUES[values])
    agrees(lambda x: torch.nanmean(x, -1, True), VALUES[values])
    agrees(torch.prod, VALUES[values])
    agrees(lambda x: torch.prod(x, -1, True), VALUES[values])


@pytest.mark.parametrize("values", EVERY)
def test_scans(values: str) -> None:
    x = EVERY[values]
    agrees(lambda x: torch.cummax(x, 0), x)
    agrees(lambda x: torch.cummin(x, -1), x)
    if x.is_floating_point():
        agrees(lambda x: torch.logcumsumexp(x, -1), x)
        agrees(lambda x: torch.logcumsumexp(x * 500, 0), x)


@pytest.mark.parametrize("values", EVERY)
def test_medians(values: str) -> None:
    x = EVERY[values]
    agrees(torch.median, x)
    agrees(torch.nanmedian, x)
    agrees(lambda x: torch.median(x, 0, True)[0], x)
    agrees(lambda x: torch.nanmedian(x, 0)[0], x)
    agrees(lambda x: torch.kthvalue(x, 1, 0, True)[0], x)


def test_indices_of_medians() -> None:
    agrees(lambda x: torch.median(x, 1), X)
    agrees(lambda x: torch.median(x, 1), SOME_NAN)  # the first NaN
    agrees(lambda x: torch.nanmedian(x, -1, True), X)
    agrees(lambda x: torch.kthvalue(x, 3, 1), X)
    agrees(lambda x: torch.kthvalue(x, 10)[0], TIES)  # NaN comes last


def test_modes() -> None:
    x = torch.tensor([[3, 1, 1, 3, 2], [5, 5, 5, 1, 1], [1, 2, 3, 4, 5]], dtype=torch.float64)
    agrees(torch.mode, x)
    agrees(lambda x: torch.mode(x, 0, True), x)
    agrees(torch.mode, SCALAR)
    agrees(lambda x: torch.mode(x)[0], torch.randint(0, 9, (300,), generator=_GENERATOR).double())
    agrees(torch.mode, normal(300))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("values", ["plain", "nan", "inf"])
def test_quantiles(values: str, interpolation: str) -> None:
    x, q = VALUES[values], torch.tensor([0, 0.3, 0.5, 1], dtype=torch.float64)
    agrees(lambda x, q: torch.quantile(x, q, 1, interpolation=interpolation), x, q)
    agrees(lambda x, q: torch.nanquantile(x, q, 0, True, interpolation=interpolation), x, q)


def test_shapes_of_quantiles() -> None:
    q = torch.tensor([0.2, 0.7], dtype=torch.float64)
    agrees(lambda x: torch.quantile(x, 0.7), X)
    agrees(lambda x: torch.quantile(x, 0.7), SCALAR)
    agrees(lambda x: torch.quantile(x, 0.7, keepdim=True), X)
    agrees(lambda x, q: torch.quantile(x, q, keepdim=True), X, q)
    agrees(lambda x, q: torch.quantile(x, q), X, q)
    agrees(lambda x, q: torch.quantile(x, q, dim=2), X, q[1])


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_sequences(right: bool) -> None:
    bounds = torch.tensor([1, 2, 2, 5, 7], dtype=torch.float64)
    x = torch.tensor([[0, 1, 2], [5, 9, NAN]], dtype=torch.float64)
    agrees(lambda b, x: torch.searchsorted(b, x, right=right), bounds, x)
    agrees(lambda b, x: torch.bucketize(x, b, right=right, out_int32=True), bounds, x)
    agrees(lambda b: torch.searchsorted(b, 2.0, right=right), bounds)
    agrees(lambda b: torch.bucketize(2.0, b, right=right), bounds)
    agrees(lambda b, x: torch.bucketize(x, b, right=right), bounds, SCALAR)
    agrees(lambda b, x: torch.searchsorted(b, x, right=right), normal(2, 5).sort()[0], x)
    agrees(lambda b, x: torch.searchsorted(b, x, side="right"), bounds, x)
    agrees(
        lambda b, s, x: torch.searchsorted(b, x, sorter=s),
        *(bounds.flip(0), torch.tensor([4, 3, 2, 1, 0]), x),
    )


def test_histograms() -> None:
    x = torch.tensor([0, 1, 2, 2.5, 3, 10, -1, 4], dtype=torch.float64)
    agrees(lambda x: torch.histc(x, 4, 0, 4), x)  # both ends count, what is outside does not
    agrees(lambda x: torch.histc(x, 5), x)
    agrees(lambda x: torch.histc(x, 3, 2, 2), x)
    agrees(lambda x: torch.histc(x, 3), torch.ones(4, dtype=torch.float64))
    agrees(lambda x: torch.histc(x, 10, -1, 1), normal(50))
    agrees(torch.histc, SCALAR)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, -1, INF, -INF], ids=str)
def test_vector_norms(p: float) -> None:
    agrees(lambda x: torch.linalg.vector_norm(x, p), X)
    agrees(lambda x: torch.linalg.vector_norm(x, p, (0, 2), True), X)
    agrees(lambda x: torch.linalg.vector_norm(x, p), SCALAR)


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, INF], ids=str)
def test_distances(p: float) -> None:
    agrees(lambda a, b: torch.cdist(a, b, p), normal(2, 1, 5, 3), normal(3, 4, 3))
    agrees(lambda a: F.pdist(a, p), normal(5, 3))
    if p:
        agrees(lambda a: torch.renorm(a, p, 1, 0.5), X)


def test_distances_of_near_points_keep_their_digits() -> None:
    """Torch's way by products, which it takes for more than 25 rows, would lose them."""
    a = normal(30, 3) + 1e3
    agrees(lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), a, a + 1e-6)


def test_products() -> None:
    agrees(F.bilinear, normal(2, 3), normal(2, 4), normal(5, 3, 4))
    agrees(
        lambda c, a, b: torch.addbmm(c, a, b, beta=0.5, alpha=2),
        *(normal(2, 4), normal(3, 2, 5), normal(3, 5, 4)),
    )
    agrees(
        lambda c, a, b: torch.addbmm(c, a, b, beta=0),
        *(torch.full((2, 4), NAN, dtype=torch.float64), normal(3, 2, 5), normal(3, 5, 4)),
    )
    agrees(lambda a, b, c: torch.block_diag(a, b, c), normal(2, 3), normal(2), SCALAR)
    agrees(torch.kron, normal(2, 3), normal(3, 2))
