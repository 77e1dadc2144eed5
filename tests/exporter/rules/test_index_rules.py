"""Sampling, borders, rolls, histograms and convolutions written otherwise compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.exporter.flattening import flat_program
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules.convolutions import CONVOLUTION_RULES
from isomorph.exporter.rules.moving import MOVING_RULES
from isomorph.exporter.rules.sampling import SAMPLING_RULES
from torch import Tensor, nn

aten = torch.ops.aten
RULES = {**SAMPLING_RULES, **MOVING_RULES, **CONVOLUTION_RULES}
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def demand_same(function: Callable[..., Any], *args: Tensor) -> None:
    """Also that nothing is left of what a rule is there for."""
    program = flat_program(isomorph.trace(Calls(function), args=args))
    before = {n.target for n in program.graph.nodes} & set(RULES)
    assert before, "the operator under test is not in the program"
    legalize(program, lambda node: node.target not in before, RULES, lambda *_: None)
    assert not {n.target for n in program.graph.nodes} & before
    with torch.no_grad():
        found = list(torch.fx.Interpreter(program.graph_module).run(*args))
    wanted = torch.utils._pytree.tree_leaves(function(*args))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


IMAGE, GRID = normal(2, 3, 5, 6), normal(2, 4, 7, 2) * 0.9
VOLUME, PLACES = normal(2, 2, 4, 3, 5), normal(2, 3, 2, 4, 3) * 0.9


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_sampling_by_a_grid(mode: str, padding: str, aligned: bool) -> None:
    def function(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, aligned)

    demand_same(function, IMAGE, GRID * 2)
    if mode != "bicubic":
        demand_same(function, VOLUME, PLACES * 2)


def test_sampling_far_outside_and_between_pixels() -> None:
    grid = torch.tensor([-1.0, 1.0, 0.0, -0.25, 0.25, 50.0, -50.0, 0.6])
    places = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1)[None]
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            demand_same(
                lambda x, g, m=mode, p=padding: F.grid_sample(x, g, m, p, True),
                *(IMAGE[:1, :, :, :5], places),
            )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 4), (11, 2), (5, 13), (1, 1)])
def test_antialiased_resizing(size: tuple[int, int], mode: str) -> None:
    for aligned in (False, True):
        demand_same(
            lambda x, a=aligned: F.interpolate(x, size, mode=mode, align_corners=a, antialias=True),
            IMAGE,
        )
    factors = (0.6, 1.3)
    demand_same(lambda x: F.interpolate(x, scale_factor=factors, mode=mode, antialias=True), IMAGE)


MOVES: dict[str, Callable[[Tensor], Any]] = {
    "circular": lambda x: F.pad(x, (1, 2, 3, 1), mode="circular"),
    "circular_cut": lambda x: F.pad(x, (-1, 2, 3, -2), mode="circular"),
    "circular_cut_after": lambda x: F.pad(x, (2, -1, -2, 0), mode="circular"),
    "reflect": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "reflect_cut": lambda x: F.pad(x, (-1, 2, 3, -2), mode="reflect"),
    "reflect_line": lambda x: F.pad(x[0], (4, 0), mode="reflect"),
    "reflect_volume": lambda x: F.pad(x[None], (1, 2, 0, 3, 2, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (7, 2, 0, 9), mode="replicate"),
    "replicate_cut": lambda x: F.pad(x, (-1, 2, 3, -2), mode="replicate"),
    "replicate_volume": lambda x: F.pad(x[None], (1, 2, 0, 3, 2, 1), mode="replicate"),
    "roll": lambda x: torch.roll(x, 17),
    "roll_axes": lambda x: torch.roll(x, (2, -9, 0), (1, -1, 0)),
    "flip_nothing": lambda x: torch.flip(x, ()) + 0,
    "logspace": lambda x: x[..., :5] * torch.logspace(-2, 1.5, 5),
    "logspace_of_base": lambda x: x[..., :5] * torch.logspace(0, 4, 5, base=2.0),
    "hann": lambda x: x[0, 0] * torch.hann_window(6),
    "hann_symmetric": lambda x: x[0, 0] * torch.hann_window(6, periodic=False),
    "hamming": lambda x: x[0, 0] * torch.hamming_window(6, True, 0.6, 0.3),
    "histogram": lambda x: torch.histogram(x, 7),
    "histogram_of_one_value": lambda x: torch.histogram(x * 0 + 3, 4),
    "histogram_in_range": lambda x: torch.histogram(x, 6, range=(-1.5, 1.0)),
    "histogram_dense": lambda x: torch.histogram(x, 5, weight=x.abs(), density=True),
    "histogram_of_edges": lambda x: torch.histogram(x, torch.linspace(-1, 2, 5) ** 3),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    demand_same(MOVES[name], IMAGE)


TRANSPOSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "stride": {"stride": 3},
    "padding": {"stride": 2, "padding": 2},
    "more_padding_than_reach": {"padding": 4, "stride": 4},
    "output_padding": {"stride": 3, "output_padding": 2},
    "both": {"stride": 2, "padding": 1, "output_padding": 1},
    "dilation": {"dilation": 2, "stride": 3, "padding": 1, "output_padding": 1},
    "groups": {"groups": 2, "stride": 2},
}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions(name: str, rank: int) -> None:
    operator = getattr(F, f"conv_transpose{rank}d")
    x, weight, bias = normal(2, 4, *(5, 4, 3)[:rank]), normal(4, 3, *(3, 2, 3)[:rank]), normal(3)
    options = TRANSPOSED[name]
    if "groups" in options:
        bias = normal(6)
    demand_same(lambda x, w, b: operator(x, w, b, **options), x, weight, bias)
    demand_same(lambda x, w: operator(x, w, **options), x[0], weight)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_one_image(rank: int) -> None:
    operator = getattr(F, f"conv{rank}d")
    x, weight, bias = normal(3, *[6] * rank), normal(2, 3, *[3] * rank), normal(2)
    program = flat_program(
        isomorph.trace(Calls(lambda *a: operator(*a, stride=2, padding=1)), args=(x, weight, bias))
    )
    legalize(program, lambda node: node.target not in CONVOLUTION_RULES, CONVOLUTION_RULES)
    (node,) = (n for n in program.graph.nodes if n.target in CONVOLUTION_RULES)
    assert node.args[0].meta["val"].dim() == rank + 2
    (found,) = torch.fx.Interpreter(program.graph_module).run(x, weight, bias)
    torch.testing.assert_close(found, operator(x, weight, bias, stride=2, padding=1))
