"""Values go through coremltools' passes unchanged: no operators fused into ones that differ."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

SCALE = torch.tensor([1.5, -0.5, 3.0, 0.25]).reshape(1, 4, 1, 1)
SHIFT = torch.tensor([0.5, 2.0, -1.0, 0.0]).reshape(1, 4, 1, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * SCALE + SHIFT,
        lambda x: x * SCALE[0] + SHIFT[0],
        lambda x: functional.group_norm(x, 2, SCALE.flatten(), SHIFT.flatten()),
    ],
    ids=["scaled image", "without a batch axis", "group norm"],
)
def test_a_scale_and_a_shift_per_channel_stay_as_they_are(write, function):
    """coremltools 9.0 makes a batch norm of them, whose epsilon makes values 5e-6 smaller."""
    x = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    package = write(function, x)
    assert "batch_norm" not in package.operators()
    package.demand_right(100 * x)


def test_a_batch_norm_still_goes_into_its_convolution(write):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    net[1].running_mean.fill_(0.5)
    assert write(net, torch.randn(2, 3, 8, 8)).operators() == ["conv"]


def test_a_group_norm_keeps_a_dynamic_batch(write):
    net = nn.GroupNorm(2, 4)
    package = write(net, torch.randn(2, 4, 5, 6), input_0="batch:1..4")
    package.demand_right(torch.randn(3, 4, 5, 6))
