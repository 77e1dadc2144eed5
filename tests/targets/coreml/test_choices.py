"""`where` whose arguments have different shapes, some of them flexible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

CHOICES: dict[str, Callable[[Tensor], Tensor]] = {
    "one column": lambda x: torch.where(x > 0, x, x[:, :1]),
    "a row and a scalar": lambda x: torch.where(torch.arange(5) > 2, x, torch.tensor(1.0)),
    "only the condition is flexible": lambda x: torch.where(
        x[:, :1] > 0, torch.ones(5), torch.zeros(5)
    ),
    "more axes than any": lambda x: torch.where(x[:, None] > 0, x[:, :, None], torch.ones(5)),
    "all alike": lambda x: torch.where(x > 0, x, -x),
    "within a decomposition": lambda x: torch.diag_embed(x),
    "within a rule": lambda x: x.median(1)[0],
}


@pytest.mark.parametrize("name", CHOICES)
def test_every_size_comes_out_right(write: Any, name: str) -> None:
    written = write(CHOICES[name], torch.randn(4, 5), args_0_0="batch:1..16")
    for size in (1, 4, 16):
        written.demand_right(torch.randn(size, 5))


def test_fixed_sizes_are_left_to_coremltools(write: Any) -> None:
    written = write(CHOICES["one column"], torch.randn(4, 5))
    assert "shape" not in written.operators()
    written.demand_right(torch.randn(4, 5))
