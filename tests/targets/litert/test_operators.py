"""What litert_torch 0.10 gets wrong or lacks, put right or refused by name."""

from __future__ import annotations

import pytest
import torch
from isomorph.errors import ConversionError
from torch.nn import functional as F  # noqa: N812 - its usual name

WIDE = torch.tensor([5, -5, 2**40 + 1, 7])
FLOATS = torch.tensor([[3.0, -1.0, 2.0, 2.5], [0.5, 0.25, -4.0, 1e6 + 0.3]])
IMAGE = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])

# Beyond what float32 holds, and the least number, which has no magnitude.
DIVIDENDS = torch.tensor([16777217, 2**31 - 1, -(2**31), -16777217, 7, -7, 0], dtype=torch.int32)
DIVISORS = torch.tensor([1, 2, 3, 7, -3, 3, 5], dtype=torch.int32)

PUT_RIGHT = {
    "int32 divided towards zero": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        DIVIDENDS,
        DIVISORS,
    ),
    "int32 divided by a number": (lambda x: torch.div(x, -3, rounding_mode="trunc"), DIVIDENDS),
    "nearest resizing": (lambda x: F.interpolate(x, size=(7, 13), mode="nearest"), IMAGE[:, :, :5]),
    "nearest resizing by factors": (
        lambda x: F.interpolate(x, scale_factor=(2.0, 0.7), mode="nearest"),
        IMAGE,
    ),
    "every other column changed": (
        lambda x: torch.slice_scatter(x, x[:, ::2] + 1, 1, 0, None, 2),
        FLOATS,
    ),
    "fmod of int32": (lambda x, y: (torch.fmod(x, y), torch.fmod(x, 97)), DIVIDENDS, DIVISORS),
    "alpha of add": (lambda x, y: torch.add(x, y, alpha=10), FLOATS, FLOATS.flip(0)),
    "alpha of sub": (lambda x, y: torch.sub(x, y, alpha=-3), FLOATS, FLOATS.flip(0)),
    "topk": (lambda x: torch.topk(x, 2, dim=1), FLOATS),
    "topk of the smallest wide integers": (lambda x: torch.topk(x, 2, largest=False), WIDE),
    "topk along the first axis": (lambda x: torch.topk(x, 1, dim=0).values, FLOATS),
    "stable sort": (lambda x: torch.sort(x, dim=1, stable=True), FLOATS.round()),
    "fmod": (lambda x: torch.fmod(x, 0.7), FLOATS),
    "fmod of wide integers": (lambda x: torch.fmod(x, 3), WIDE),
    "abs of wide integers": (lambda x: x.abs(), WIDE),
    "wide constants": (lambda x: x + torch.full((4,), 2**40), WIDE),
    "boolean operators": (lambda x: (x > 0) & (x < 7) | ~(x == 0) ^ (x > 3), WIDE),
    "logical xor": (lambda x, y: torch.logical_xor(x, y), FLOATS, FLOATS.flip(0)),
    "max pooling with ceil_mode": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
    "adaptive max pooling": (lambda x: F.adaptive_max_pool2d(x, 3), IMAGE),
    "masked rows of attention": (
        lambda x, mask: F.scaled_dot_product_attention(x, x, x, attn_mask=mask),
        torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(2)),
        MASK,
    ),
    "softmax over infinities": (
        lambda x, mask: x.masked_fill(~mask, float("-inf")).softmax(0),
        torch.randn(3, 3, generator=torch.Generator().manual_seed(3)),
        MASK,
    ),
}


@pytest.mark.parametrize("case", sorted(PUT_RIGHT))
def test_put_right(case: str, write) -> None:
    function, *args = PUT_RIGHT[case]

    write(function, *args).assert_computes()


REFUSED = {
    "uint8 over a negative number": (lambda x: x // -7, torch.tensor([7], dtype=torch.uint8)),
    "a number beyond 32 bits": (lambda x: x * 3_000_000_000, WIDE),
    "int64 division": (lambda x: torch.div(x, 3, rounding_mode="trunc"), WIDE),
    "indices of max pooling": (lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE),
    "random numbers": (lambda x: x + torch.randn(4), FLOATS),
    "antialiased resizing": (
        lambda x: F.interpolate(x, size=(4, 4), mode="bicubic", antialias=True),
        IMAGE,
    ),
    "sums into the same place": (
        lambda x: torch.zeros(3).index_add(0, torch.tensor([0, 2, 2, 1]), x),
        torch.rand(4),
    ),
    "sizes that depend on values": (lambda x: torch.nonzero(x), FLOATS),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case: str, write) -> None:
    function, *args = REFUSED[case]

    with pytest.raises(ConversionError, match=r"aten::.*py:\d+"):
        write(function, *args)


def test_equal_shaped_transposed_weights_stay_apart(write) -> None:
    """litert_torch recognises constants by address, and copies of such weights die at once."""

    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(4)
            for at in range(6):
                weight = torch.randn(5, 5, generator=generator).t()
                self.register_buffer(f"w{at}", weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for at in range(6):
                x = torch.tanh(x @ getattr(self, f"w{at}"))
            return x

    write(Turned(), torch.rand(2, 5)).assert_computes()


def test_infinite_constants_are_kept_in_file_and_model(write) -> None:
    class Limits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("limits", torch.tensor([float("inf"), -1.0, float("-inf")]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.maximum(x, self.limits)

    written = write(Limits(), torch.rand(3))

    written.assert_computes()
    assert torch.isinf(written.module.limits).sum() == 2
