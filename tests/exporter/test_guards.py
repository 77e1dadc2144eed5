"""What a program assumes of its sizes is tried on the sizes that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.exporter.graph import Graph
from torch import Tensor, nn


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def captured(function: Callable[..., Tensor], dim: str, size: int = 12) -> Graph:
    return isomorph.trace(Calls(function), args=(torch.randn(2, size),), dynamic={"x.1": dim})


def second_half(x: Tensor) -> Tensor:
    return x[:, x.shape[1] // 2 :]


def middle_third(x: Tensor) -> Tensor:
    return x[:, x.shape[1] // 3 : 2 * x.shape[1] // 3]


@pytest.mark.parametrize(
    ("function", "dim", "sizes"),
    [
        (second_half, "t:4..33", range(4, 34)),
        (second_half, "t:3..100000", (3, 4, 999, 100000)),
        (middle_third, "t:6..40", range(6, 41)),
    ],
)
def test_a_guard_that_always_holds_does_not_refuse_the_model(
    function: Callable[..., Tensor], dim: str, sizes: Any
) -> None:
    graph = captured(function, dim)
    for size in sizes:
        x = torch.randn(2, size)
        torch.testing.assert_close(graph.run({"x": x})["output_0"], function(x))


def test_the_tried_assumptions_leave_nothing_in_the_graph() -> None:
    left = [str(node.target) for node in captured(second_half, "t:4..33").program.graph.nodes]
    assert not any("assert" in target or "sym_not" in target for target in left)


def halves_evenly(x: Tensor) -> Tensor:
    return x + 1 if (x.shape[1] // 2) % 2 == 0 else x


def special(x: Tensor) -> Tensor:
    return x if 2 * x.shape[1] == 1000 else x + 1


@pytest.mark.parametrize(
    ("function", "dim", "told", "remedy"),
    [
        (second_half, "t:1..33", "fails for t = 1", "t works for 3..33"),
        (second_half, "t", "fails for t = 1", "t works for 3.."),
        (middle_third, "t:1..40", "fails for t = 1", "t works for 5..40"),
        (halves_evenly, "t:4..33", r"t//2.*fails for t = 6", ":MIN..MAX:4"),
        (special, "t:4..100000", r"t != 500, which fails for t = 500", "maximum"),
        (lambda x: x.view(2, -1, 3), "t:6..33", "fails for t = 7", ":MIN..MAX:3"),
        (lambda x: x.unfold(1, 5, 2), "t:4..33", "5 <= ", "t works for 5..33"),
    ],
)
def test_one_that_fails_is_told_with_the_size_and_the_way_out(
    function: Callable[..., Tensor], dim: str, told: str, remedy: str
) -> None:
    with pytest.raises(ConversionError, match=told) as raised:
        captured(function, dim)
    assert remedy in (raised.value.hint or "")


def windows(x: Tensor) -> Tensor:
    return x.unflatten(1, (-1, 4)).transpose(0, 1).flatten(1).softmax(1)


def test_with_a_step_a_branch_on_one_size_is_found_by_running_the_model_there() -> None:
    def one_size(x: Tensor) -> Tensor:
        return x if x.shape[1] == 22 else x + 1

    with pytest.raises(ConversionError, match="fails for t = 22"):
        captured(one_size, "t:4..64:2")
    with pytest.raises(ConversionError, match="fails for t = 6"):
        captured(halves_evenly, "t:4..32:2")


def test_with_a_step_a_guard_that_changes_nothing_refuses_nothing() -> None:
    graph = captured(windows, "t:4..32:4")  # traced for more than one window
    for size in (4, 8, 32):
        x = torch.randn(2, size)
        torch.testing.assert_close(graph.run({"x": x})["output_0"], windows(x))
