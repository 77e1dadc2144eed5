"""Rules that pick by index or go window by window compute what the operators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules.nearest import NEAREST_RULES
from isomorph.exporter.rules.pooling_windows import WINDOW_RULES
from isomorph.exporter.rules.strided import STRIDED_RULES
from torch import Tensor, nn

RULES = {**STRIDED_RULES, **WINDOW_RULES, **NEAREST_RULES}
X = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(0))
WITH_NAN = X.clone()
WITH_NAN[0, 0, 4, 4] = float("nan")


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def rewritten(function: Callable[[Tensor], Any], x: Tensor) -> list[Tensor]:
    program = flat_program(isomorph.trace(Calls(function), args=(x,)))
    before = {n.target for n in program.graph.nodes} & set(RULES)
    assert before, "the operator under test is not in the program"
    legalize(program, lambda node: node.target not in RULES, RULES, decompose)
    assert not {n.target for n in program.graph.nodes} & before
    holders = [n for n in program.graph.nodes if n.op == "placeholder"]
    assert len(holders) == 1
    with torch.no_grad():
        return list(torch.fx.Interpreter(program.graph_module).run(x))


STRIDED: dict[str, Callable[[Tensor], Any]] = {
    "diagonal": lambda x: torch.diagonal(x, 0, 2, 3),
    "diagonal_above": lambda x: torch.diagonal(x, 3, -2, -1),
    "diagonal_below": lambda x: torch.diagonal(x, -4, 3, 1),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x[:, :, 0, :7] * 2, 1, 2, 3),
    "diagonal_scatter_below": lambda x: torch.diagonal_scatter(x, x[:, :, 0, :6] * 2, -3, 2, 3),
    "as_strided": lambda x: torch.as_strided(x, (4, 5), (3, 7), 11),
    "as_strided_point": lambda x: torch.as_strided(x, (), (), 5),
    "as_strided_overlapping": lambda x: torch.as_strided_copy(x, (6, 3), (1, 1)),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[0, 0, :4, :5], (4, 5), (5, 1), 2),
    "unfold": lambda x: x.unfold(2, 4, 2),
    "unfold_last": lambda x: x.unfold(-1, 3, 3),
}
POOLS: dict[str, Callable[[Tensor], Any]] = {
    "max_indices": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 1, 1, dilation=3),
    "max_uneven": lambda x: F.max_pool2d(x, (3, 2), (2, 3), (1, 0), return_indices=True),
    "max_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "max_1d": lambda x: F.max_pool1d(x[0], 3, 2, return_indices=True),
    "max_3d": lambda x: F.max_pool3d(x, 2, 2, (0, 1, 0), return_indices=True),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
    "adaptive_max_1d": lambda x: F.adaptive_max_pool1d(x[0], 5, return_indices=True),
    "adaptive_mean": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive_mean_grows": lambda x: F.adaptive_avg_pool2d(x, (11, 3)),
    "mean_ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "mean_ceil_uncounted": lambda x: F.avg_pool2d(x, 4, 3, 2, True, False),
    "mean_divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7),
    "mean_1d": lambda x: F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True),
    "mean_3d": lambda x: F.avg_pool3d(x, 2, 2, 1, ceil_mode=True),
}
NEAREST: dict[str, Callable[[Tensor], Any]] = {
    "by_size": lambda x: F.interpolate(x, (13, 5)),
    "by_factor": lambda x: F.interpolate(x, scale_factor=(1.3, 0.7)),
    "recomputed": lambda x: F.interpolate(x, scale_factor=1.7, recompute_scale_factor=True),
    "exact": lambda x: F.interpolate(x, (13, 5), mode="nearest-exact"),
    "exact_by_factor": lambda x: F.interpolate(x, scale_factor=0.6, mode="nearest-exact"),
    "1d": lambda x: F.interpolate(x[0], 11),
    "3d": lambda x: F.interpolate(x[None], (5, 7, 3)),
}


@pytest.mark.parametrize("name", [*STRIDED, *POOLS, *NEAREST])
def test_the_same_comes_out(name: str) -> None:
    function = {**STRIDED, **POOLS, **NEAREST}[name]
    wanted = torch.utils._pytree.tree_leaves(function(X))
    torch.testing.assert_close(rewritten(function, X), wanted)


@pytest.mark.parametrize("size", [3, 5, 7, 10, 23, 49])
@pytest.mark.parametrize("count", [4, 6, 9, 31, 50])
def test_nearest_picks_pytorch_s_pixels_at_every_ratio(size: int, count: int) -> None:
    x = torch.arange(float(size)).reshape(1, 1, size)
    for mode in ("nearest", "nearest-exact"):
        (found,) = rewritten(lambda y, m=mode: F.interpolate(y, count, mode=m), x)
        torch.testing.assert_close(found, F.interpolate(x, count, mode=mode))


def test_a_nan_is_the_largest_of_its_window() -> None:
    function = POOLS["max_indices"]
    wanted = list(function(WITH_NAN))
    torch.testing.assert_close(rewritten(function, WITH_NAN), wanted, equal_nan=True)


def test_too_many_windows_stay_an_operator() -> None:
    program = flat_program(isomorph.trace(Calls(lambda x: F.adaptive_avg_pool2d(x, 60)), args=(X,)))
    legalize(program, lambda node: node.target not in RULES, WINDOW_RULES)
    assert torch.ops.aten.adaptive_avg_pool2d.default in {n.target for n in program.graph.nodes}
