"""Whole numbers beyond 2^24 come out exactly; narrow ones wrap around; what cannot is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn

DRAW = torch.Generator().manual_seed(0)
TOP = 2**31 - 1
# fmt: off
X = torch.tensor([16777217, TOP, -TOP - 1, -16777217, 7, -7, 0, TOP - 1, TOP, -TOP, 100, 5])
Y = torch.tensor([16777216, TOP - 1, 3, -16777216, 3, 3, 5, TOP, -3, -TOP, -7, -TOP - 1])
# fmt: on
BITS = torch.randint(0, 31, (500,), generator=DRAW)
ANY = torch.randint(-TOP - 1, TOP, (500,), generator=DRAW)
ANY_DIVISOR = (torch.randint(1, TOP, (500,), generator=DRAW) >> BITS).clamp(1) * (-1) ** BITS
TABLE = torch.tensor([[16777217, 1, 3], [33554433, 2, -16777219]])
BYTES = torch.tensor([0, 1, 200, 255, 128, 100]).to(torch.uint8)
SIGNED = torch.tensor([-128, 127, -1, 5, 64, 100]).to(torch.int8)


def divided(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        x // y,
        x % y,
        torch.fmod(x, y),
        torch.div(x, y, rounding_mode="trunc"),
        x // -97,
        torch.fmod(x, 97),
        torch.div(x, 3, rounding_mode="trunc"),
    )


WIDE = {
    "division": (divided, X, Y),
    "division of any": (divided, ANY, ANY_DIVISOR),
    "comparison": (lambda x, y: (x < y, x <= y, x == y, x > y, x >= y, x != y, x > TOP - 1), X, Y),
    "choice": (lambda x, y: (torch.where(x > 5, x, y), x.masked_fill(y == 3, 16777219)), X, Y),
    "clamp": (lambda x, y: x.clamp(-16777217, 16777219), X, Y),
    "sums": (lambda x, y: (x.sum(1), x.sum(0, keepdim=True)), TABLE, TABLE + 0),
    "extremes": (lambda x, y: (x.amax(1), x.amin(0), x.max(), x.min(1)[0]), TABLE, TABLE + 0),
    "powers": (lambda x, y: x**2, torch.tensor([4097, -4099]), torch.tensor([0])),
    "casts to bool": (lambda x, y: x.bool(), X, Y),
    "a hash": (lambda x, y: (x * 100003) % 97, torch.arange(21000), torch.tensor([0])),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("case", sorted(WIDE))
def test_wide_numbers_are_exact(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    function, x, y = WIDE[case]

    compare(function, x.to(dtype), y.to(dtype), tmp_path)


NARROW = {
    "add": lambda x, y: x + 100,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "negative": lambda x, y: -x,
    "what wrapped is compared": lambda x, y: (x + 100) > 50,
    "division": lambda x, y: (x // 3, x % 3),
}


@pytest.mark.parametrize("values", [BYTES, SIGNED, SIGNED.to(torch.int16) * 255], ids=str)
@pytest.mark.parametrize("case", sorted(NARROW))
def test_narrow_numbers_wrap_around(case: str, values: Tensor, tmp_path: Path) -> None:
    compare(NARROW[case], values, values.flip(0), tmp_path)


def test_a_product_of_whole_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"aten::prod.*test_integers.py:\d+"):
        compare(lambda x, y: x.prod(1), TABLE, TABLE + 0, tmp_path)


def compare(function: Any, x: Tensor, y: Tensor, directory: Path) -> None:
    """OpenVINO's outputs equal torch's."""

    class Net(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return function(x, y)

    graph = isomorph.trace(Net(), args=(x, y))
    artifact = OpenVinoTarget().convert(graph, OpenVinoOptions(), directory, "net")
    with OpenVinoTarget().open(artifact.path) as session:
        found = session.run({"x": x.numpy(), "y": y.numpy()})
    expected = function(x, y)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for name, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(found[name], wanted.numpy())
        assert found[name].dtype == wanted.numpy().dtype
