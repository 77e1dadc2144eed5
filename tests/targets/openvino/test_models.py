"""Models and operators whose stock conversion is wrong or fails are written right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, kind: type, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.core = kind(4, 6, batch_first=True, **options)

    def forward(self, x: Tensor) -> Any:
        return self.core(x)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (nn.LSTM, {"bias": False}),
        (nn.GRU, {"bidirectional": True}),
        (nn.GRU, {"bias": False}),
    ],
)
def test_recurrent_layers_keep_a_dynamic_time_axis(kind, options, tmp_path: Path) -> None:
    result = isomorph.export(
        Recurrent(kind, **options),
        "openvino",
        args=(torch.randn(2, 5, 4),),
        dynamic={"x.0": "batch:1..4", "x.1": "time:1..12"},
        output=tmp_path / "net.xml",
        require="executed",
    )
    result.raise_for_verdict()


class Division(nn.Module):
    def forward(self, a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return (
            a // b,
            torch.div(a, b, rounding_mode="trunc"),
            a % b,
            x // -2.5,
            torch.div(x * 2**34, 4, rounding_mode="trunc"),
        )


def test_floor_division_is_torchs(tmp_path: Path) -> None:
    a, b = torch.tensor([-7, -6, -1, 0, 1, 6, 7]), torch.tensor([3, -4, 5, 3, -3, 4, -2])
    x = torch.tensor([1.0, 0.3, -0.7, 5.0, -5.0, 0.0, 7.5])
    args = (a, b, x)
    graph = isomorph.trace(Division().eval(), args=args)
    from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget

    path = OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "net").path
    feed = {spec.name: value.numpy() for spec, value in zip(graph.inputs, args, strict=True)}
    with OpenVinoTarget().open(path) as session:
        found = session.run(feed).values()
    for wanted, value in zip(Division()(*args), found, strict=True):
        assert wanted.tolist() == value.tolist()


class Masked(nn.Module):
    def forward(self, q: Tensor, mask: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def test_rows_masked_throughout_are_zero(tmp_path: Path) -> None:
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    result = isomorph.export(
        Masked(),
        "openvino",
        args=(torch.randn(1, 2, 6, 4), mask),
        output=tmp_path / "net.xml",
    )
    result.raise_for_verdict()
