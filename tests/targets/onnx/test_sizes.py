"""Sizes that follow from floats: exact in the file, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.errors import ConversionError
from isomorph.targets.onnx.sizes import is_exact
from torch import Tensor, nn


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


DYNAMIC = {"x.2": "height:4..128"}

INEXACT: dict[str, Callable[[Tensor], Any]] = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.3),
    "nearest_exact": lambda x: F.interpolate(x, scale_factor=2.3, mode="nearest-exact"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.1, mode="bicubic"),
    "antialiased": lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear", antialias=True),
    "recomputed": lambda x: F.interpolate(
        x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True
    ),
    "adaptive_average": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "adaptive_maximum": lambda x: F.adaptive_max_pool2d(x, (3, 5)),
    "area": lambda x: F.interpolate(x, size=(3, 5), mode="area"),
    "arange_end": lambda x: torch.arange(0, x.shape[2] * 0.1, 0.1),
    "arange_step": lambda x: torch.arange(0, x.shape[2], 0.1),
    "arange_quotient": lambda x: torch.arange(0, 1, 1 / x.shape[2]),
}


@pytest.mark.parametrize("name", INEXACT)
def test_dynamic_size_from_an_inexact_float_is_refused(name: str, write: Any) -> None:
    with pytest.raises(ConversionError, match=r"test_sizes\.py") as raised:
        write(Calls(INEXACT[name]), torch.randn(1, 2, 90, 10), dynamic=DYNAMIC)

    assert raised.value.hint is not None
    assert "size=" in raised.value.hint


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projected_lstm_with_dynamic_time_is_refused(bidirectional: bool, write: Any) -> None:
    lstm = nn.LSTM(4, 3, proj_size=2, bidirectional=bidirectional)

    with pytest.raises(ConversionError, match=r"aten::lstm.*proj_size"):
        write(lstm, torch.randn(5, 2, 4), dynamic={"input.0": "time:1..30"})


def test_projected_lstm_takes_any_batch(write: Any) -> None:
    lstm = nn.LSTM(4, 3, proj_size=2, bidirectional=True)

    written = write(lstm, torch.randn(5, 2, 4), dynamic={"input.1": "batch:1..8"})

    for batch in (1, 2, 7):
        written.assert_computes((torch.randn(5, batch, 4),), 1e-4)


EXACT: dict[str, Callable[[Tensor], Any]] = {
    "doubled": lambda x: F.interpolate(x, scale_factor=2.0),
    "halved": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "by_half_again": lambda x: F.interpolate(x, scale_factor=1.5),
    "recomputed": lambda x: F.interpolate(
        x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True
    ),
    "size": lambda x: F.interpolate(x, size=(x.shape[2] * 2, 7), mode="bilinear"),
    "pooled_whole": lambda x: F.adaptive_avg_pool2d(x, 1),
    "pooled_to_a_line": lambda x: F.adaptive_avg_pool2d(x, (1, 5)),
    "pooled_to_an_uneven_line": lambda x: F.adaptive_avg_pool2d(x, (1, 4)),
    "pooled_on_one_axis": lambda x: F.adaptive_avg_pool2d(x, (None, 5)),
    "arange": lambda x: torch.arange(0, x.shape[2] * 0.5, 0.5),
    "scaled_values": lambda x: x * (x.shape[2] * 0.3) / x.shape[2] ** 0.5,
}


@pytest.mark.parametrize("name", EXACT)
def test_dynamic_size_from_an_exact_float_is_computed(name: str, write: Any) -> None:
    written = write(Calls(EXACT[name]), torch.randn(1, 2, 90, 10), dynamic=DYNAMIC)

    for height in (5, 37, 90, 127):
        written.assert_computes((torch.randn(1, 2, height, 10),), 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("factor", [1.3, 2.3])
def test_static_size_takes_any_factor(mode: str, factor: float, write: Any) -> None:
    x = torch.randn(1, 2, 90, 55)

    written = write(Calls(lambda x: F.interpolate(x, scale_factor=factor, mode=mode)), x)

    written.assert_computes((x,), 1e-4)


def test_other_ranks_take_any_factor(write: Any) -> None:
    line, volume = torch.randn(1, 2, 90), torch.randn(1, 2, 30, 9, 10)

    for x, mode in (
        (line, "nearest"),
        (line, "linear"),
        (volume, "nearest"),
        (volume, "trilinear"),
    ):
        module = Calls(lambda x, mode=mode: F.interpolate(x, scale_factor=1.3, mode=mode))
        write(module, x).assert_computes((x,), 1e-4)


def test_exact_are_numbers_of_few_bits() -> None:
    assert [f for f in (2.0, 0.5, 1.5, 0.25, 1.3, 0.1, 2.3, 1 / 3) if is_exact(f)] == [
        2.0,
        0.5,
        1.5,
        0.25,
    ]
