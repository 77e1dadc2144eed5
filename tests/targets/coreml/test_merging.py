"""Windows of a batch of images: six axes on the way, in five or fewer, also of a dynamic batch."""

from __future__ import annotations

import pytest
import torch


def windows(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    cut = x.view(batch, height // 2, 2, width // 3, 3, channels)
    return cut.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 2, 3, channels)


def patches(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    cut = x.reshape(batch, height // 2, 2, width // 3, 3, channels)
    return cut.permute(0, 1, 3, 4, 2, 5).flatten(3)


@pytest.mark.parametrize("function", [windows, patches])
def test_transposes_of_six_axes_keep_a_dynamic_batch(write, function):
    package = write(function, torch.randn(2, 4, 6, 5), args_0_0="batch:1..4")
    for batch in (1, 3):
        package.demand_right(torch.randn(batch, 4, 6, 5))
