"""How float16 sums are kept."""

from __future__ import annotations

import math

import pytest
import torch
from isomorph.targets.coreml.evaluate import sums

SEED = torch.Generator().manual_seed(7)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=SEED)


@pytest.mark.parametrize("count", [1, 511, 512, 513, 4096, 25088])
def test_blocks_cover_every_term_once(count: int) -> None:
    cuts = sums.blocks(count)

    assert [i for cut in cuts for i in range(count)[cut]] == list(range(count))
    assert len(cuts) <= sums.MOST_BLOCKS
    assert all(cut.stop - cut.start >= min(count, sums.BLOCK) for cut in cuts[:-1])


def test_a_part_is_rounded_before_it_is_added() -> None:
    parts = [torch.tensor([2048.0]), torch.tensor([1.0]), torch.tensor([1.0])]

    assert sums.accumulated(parts, torch.float32).tolist() == [2050]
    assert sums.accumulated(parts, torch.float16).tolist() == [2048]


@pytest.mark.parametrize("terms", [300, 2000, 10000])
def test_a_float16_product_is_close_to_one_that_is_rounded_once(terms: int) -> None:
    x, y = normal(64, terms).half(), (normal(terms, 64) / math.sqrt(terms)).half()
    truth = x.double() @ y.double()
    once = (truth.half() - truth).square().mean().sqrt()

    exact = sums.product(x, y, torch.float32).half() - truth
    short = sums.product(x, y, torch.float16).half() - truth

    assert exact.square().mean().sqrt() < 1.01 * once
    # Two for four blocks: what a half-precision artifact may reach as a whole.
    assert 0.99 <= short.square().mean().sqrt() / once < 2


def test_sums_of_float32_are_not_cut() -> None:
    x, y = normal(3, 3000), normal(3000, 2)

    assert torch.equal(sums.product(x, y, torch.float16), x @ y)
    assert torch.equal(sums.product(x, y.half(), torch.float16), x @ y.half().float())


@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", [[0], [2, 0], [-1], [0, 1, 2], []])
def test_totals_and_means_over_dimensions(
    dims: list[int], keepdim: bool, accumulate: torch.dtype
) -> None:
    terms = normal(40, 2, 30).half().float()
    want = terms.double().sum(dims, keepdim=keepdim) if dims else terms.double()
    count = math.prod(terms.shape[dim] for dim in dims)

    found = sums.total(terms, dims, accumulate, keepdim)
    mean = sums.mean(terms, dims, accumulate, keepdim)

    torch.testing.assert_close(found.double(), want, rtol=3e-3, atol=0.1)
    torch.testing.assert_close(mean.double(), want / count, rtol=3e-3, atol=1e-3)


def test_a_mean_in_float16_does_not_overflow() -> None:
    terms = torch.full((100_000,), 100.0)

    assert sums.mean(terms, [0], torch.float16).item() == pytest.approx(100, rel=2e-3)
    assert math.isinf(sums.total(terms, [0], torch.float16).item())
