"""Noise of one unit in the last place: exact, repeatable, harmless to special values."""

from __future__ import annotations

import pytest
import torch
from isomorph.validation.jitter import jitter

INTEGERS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.bfloat16: torch.int16,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_element_moves_by_exactly_one_ulp(dtype):
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = x[x != x.trunc()]
    steps = jitter(x, "key", 1).view(INTEGERS[dtype]) - x.view(INTEGERS[dtype])
    assert set(steps.tolist()) == {-1, 1}
    assert abs(steps.double().mean()) < 0.02


def test_large_tensors_are_covered_to_the_end():
    x = torch.full((3 * 2**20 + 5,), 1.5)
    assert bool((jitter(x, "key", 1) != x).all())


def test_whole_numbers_stay_because_masks_and_counts_are_meant_exactly():
    x = torch.tensor([0.0, 1.0, -3.0, 255.0, 0.5])
    assert (jitter(x, "key", 1) != x).tolist() == [False, False, False, False, True]


def test_the_key_decides_and_the_sign_reverses():
    x = torch.randn(1000)
    assert torch.equal(jitter(x, "a", 1), jitter(x, "a", 1))
    assert not torch.equal(jitter(x, "a", 1), jitter(x, "b", 1))
    forth, back = jitter(x, "a", 1) - x, jitter(x, "a", 1, -1) - x
    assert torch.equal(forth.sign(), -back.sign())


def test_special_values_stay():
    x = torch.tensor([0.0, float("inf"), float("-inf"), float("nan"), torch.finfo().max, 1.0])
    for key in "abcdef":
        moved = jitter(x, key, 1)
        assert torch.equal(moved[:3], x[:3])
        assert torch.isnan(moved[3])
        assert torch.isfinite(moved[4])


def test_integers_and_booleans_stay():
    for x in (torch.arange(5), torch.tensor([True, False])):
        assert torch.equal(jitter(x, "key", 1), x)


def test_the_source_is_not_written_to():
    x = torch.randn(10)
    before = x.clone()
    jitter(x, "key", 1)
    assert torch.equal(x, before)


def test_complex_values_move():
    x = torch.randn(10, dtype=torch.complex64)
    moved = jitter(x, "key", 1)
    assert moved.dtype is torch.complex64
    assert bool((moved != x).all())
