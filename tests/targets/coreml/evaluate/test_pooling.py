"""Pooling against torch in float64, and against loops where torch has no such padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray
from torch.nn import functional

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]
KINDS = pytest.mark.parametrize("kind", ["avg_pool", "max_pool", "l2_pool"])
SIZES = {1: (11,), 2: (7, 10), 3: (5, 6, 7)}


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def looped(
    kind: str,
    x: Array,
    kernels: list[int],
    strides: list[int],
    pads: list[int],
    counts: list[int],
    exclude: bool = False,
) -> torch.Tensor:
    """Each window's pixels, one window after another; what is outside x is padding."""
    found = np.zeros((*x.shape[:2], *counts))
    for place in itertools.product(*map(range, counts)):
        starts = [p * s - b for p, s, b in zip(place, strides, pads[::2], strict=True)]
        inside = tuple(
            slice(max(start, 0), max(0, min(start + kernel, size)))
            for start, kernel, size in zip(starts, kernels, x.shape[2:], strict=True)
        )
        pixels = x.astype(np.float64)[(slice(None), slice(None), *inside)].reshape(*x.shape[:2], -1)
        if kind == "max_pool":
            value = pixels.max(-1)
        elif kind == "l2_pool":
            value = np.sqrt((pixels**2).sum(-1))
        else:
            value = pixels.sum(-1) / (pixels.shape[-1] if exclude else math.prod(kernels))
        found[(slice(None), slice(None), *place)] = value
    return torch.from_numpy(found)


@pytest.mark.parametrize(
    ("kind", "rank"),
    [
        *itertools.product(["avg_pool", "max_pool", "l2_pool"], [1, 2]),
        *itertools.product(["avg_pool", "max_pool"], [3]),
    ],
)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_valid_windows(evaluated: Evaluated, kind: str, rank: int, stride: int) -> None:
    x, kernels = noise(2, 3, *SIZES[rank]), [3, 2, 4][:rank]
    counts = [(size - k) // stride + 1 for size, k in zip(SIZES[rank], kernels, strict=True)]

    found = evaluated(
        kind, {"x": x}, kernel_sizes=kernels, strides=[stride] * rank, pad_type="valid"
    )

    close(found, looped(kind, x, kernels, [stride] * rank, [0] * 2 * rank, counts))


@KINDS
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("pad", [[0, 1, 2, 0], [1, 2, 0, 1], [2, 2, 1, 1]])
def test_uneven_custom_pads(evaluated: Evaluated, kind: str, exclude: bool, pad: list[int]) -> None:
    x, kernels, strides = noise(1, 2, 7, 10) - 3, [3, 4], [2, 3]
    options = {"exclude_padding_from_average": exclude} if kind == "avg_pool" else {}
    counts = [
        (x.shape[2 + i] + pad[2 * i] + pad[2 * i + 1] - kernels[i]) // strides[i] + 1
        for i in range(2)
    ]

    found = evaluated(
        kind,
        {"x": x},
        kernel_sizes=kernels,
        strides=strides,
        pad_type="custom",
        pad=pad,
        **options,
    )

    close(found, looped(kind, x, kernels, strides, pad, counts, exclude))


@pytest.mark.parametrize("size", [6, 7, 8, 9])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("ceil", [False, True])
def test_symmetric_windows_are_those_of_torch(
    evaluated: Evaluated, size: int, padding: int, stride: int, ceil: bool
) -> None:
    x = noise(1, 2, size, size + 1)
    options: dict[str, Any] = {
        "kernel_sizes": [3, 3],
        "strides": [stride] * 2,
        "pad_type": "custom",
        "pad": [padding] * 4,
        "ceil_mode": ceil,
    }
    wide = torch.from_numpy(x).double()

    largest = evaluated("max_pool", {"x": x}, **options)
    average = evaluated("avg_pool", {"x": x}, exclude_padding_from_average=True, **options)

    close(largest, functional.max_pool2d(wide, 3, stride, padding, ceil_mode=ceil))
    close(
        average,
        functional.avg_pool2d(wide, 3, stride, padding, ceil_mode=ceil, count_include_pad=False),
    )


def test_ceil_mode_drops_a_window_that_starts_in_the_padding_after(evaluated: Evaluated) -> None:
    x = noise(1, 1, 4)

    found = evaluated(
        "max_pool",
        {"x": x},
        kernel_sizes=[2],
        strides=[3],
        pad_type="custom",
        pad=[1, 1],
        ceil_mode=True,
    )

    close(found, functional.max_pool1d(torch.from_numpy(x).double(), 2, 3, 1, ceil_mode=True))
    assert found.shape == (1, 1, 2)


def test_ceil_mode_that_counts_padding_is_refused_where_a_window_hangs_over(
    evaluated: Evaluated,
) -> None:
    options = {"kernel_sizes": [3], "strides": [2], "pad_type": "valid", "ceil_mode": True}

    assert evaluated("avg_pool", {"x": noise(1, 1, 7)}, **options).shape == (1, 1, 3)
    with pytest.raises(UnverifiableError, match="reaches over the padding"):
        evaluated("avg_pool", {"x": noise(1, 1, 8)}, **options)


@KINDS
@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("pad_type", ["same", "same_lower"])
def test_same_with_odd_windows(
    evaluated: Evaluated, kind: str, size: int, kernel: int, pad_type: str
) -> None:
    x = noise(1, 2, size)

    found = evaluated(kind, {"x": x}, kernel_sizes=[kernel], pad_type=pad_type)

    close(found, looped(kind, x, [kernel], [1], [kernel // 2] * 2, [size]))


@pytest.mark.parametrize(("pad_type", "before"), [("same", 0), ("same_lower", 1)])
def test_same_puts_the_odd_one_after_and_same_lower_before(
    evaluated: Evaluated, pad_type: str, before: int
) -> None:
    x = noise(1, 2, 6)

    found = evaluated("avg_pool", {"x": x}, kernel_sizes=[2], pad_type=pad_type)

    close(found, looped("avg_pool", x, [2], [1], [before, 1 - before], [6]))


def test_same_is_refused_where_the_documentation_contradicts_itself(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="contradicts itself"):
        evaluated("max_pool", {"x": noise(1, 1, 7)}, kernel_sizes=[2], strides=[2], pad_type="same")


@pytest.mark.parametrize("kind", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("pad", [[3, 0], [0, 3]])
def test_windows_that_lie_in_the_padding_are_refused(
    evaluated: Evaluated, kind: str, pad: list[int]
) -> None:
    options = {"exclude_padding_from_average": True} if kind == "avg_pool" else {}

    with pytest.raises(UnverifiableError, match="lies in the padding"):
        evaluated(
            kind, {"x": noise(1, 1, 6)}, kernel_sizes=[3], pad_type="custom", pad=pad, **options
        )


def test_an_average_of_padding_alone_is_zero(evaluated: Evaluated) -> None:
    found = evaluated(
        "avg_pool", {"x": noise(1, 1, 6)}, kernel_sizes=[2], pad_type="custom", pad=[2, 0]
    )

    assert found[0, 0, 0] == 0


def test_a_window_over_the_end_without_padding_is_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="lies in the padding"):
        evaluated(
            "max_pool",
            {"x": noise(1, 1, 5)},
            kernel_sizes=[1],
            strides=[3],
            pad_type="valid",
            ceil_mode=True,
        )


def test_padding_is_never_the_largest_value(evaluated: Evaluated) -> None:
    x = np.full((1, 1, 4), -7, np.float32)

    found = evaluated("max_pool", {"x": x}, kernel_sizes=[3], pad_type="custom", pad=[1, 1])

    assert found.tolist() == [[[-7] * 4]]


def test_infinities_are_ordered_and_nan_is_refused(evaluated: Evaluated) -> None:
    x = np.array([[[-np.inf, -np.inf, 1, np.inf]]], np.float32)

    found = evaluated("max_pool", {"x": x}, kernel_sizes=[2], pad_type="valid")

    assert found.tolist() == [[[-np.inf, 1, np.inf]]]
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated("max_pool", {"x": x * np.nan}, kernel_sizes=[2], pad_type="valid")


@KINDS
@pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
def test_float16(evaluated: Evaluated, kind: str, accumulate: torch.dtype) -> None:
    x = noise(1, 2, 40, 40).astype(np.float16)
    pad, counts = [1, 1, 0, 1], [(42 - 30) // 2 + 1, (41 - 30) // 2 + 1]

    found = evaluated(
        kind,
        {"x": x},
        accumulate=accumulate,
        kernel_sizes=[30, 30],
        strides=[2, 2],
        pad_type="custom",
        pad=pad,
    )

    assert found.dtype == torch.float16
    close(found, looped(kind, x, [30, 30], [2, 2], pad, counts), 2e-3)


@pytest.mark.parametrize("exclude", [False, True])
def test_large_values_do_not_overflow_a_float16_average(
    evaluated: Evaluated, exclude: bool
) -> None:
    x = np.full((1, 1, 40, 40), 60000, np.float16)

    found = evaluated(
        "avg_pool",
        {"x": x},
        accumulate=torch.float16,
        kernel_sizes=[40, 40],
        pad_type="valid",
        exclude_padding_from_average=exclude,
    )

    close(found, torch.full((1, 1, 1, 1), 60000.0).double(), 2e-3)


@pytest.mark.parametrize("exclude", [False, True])
def test_long_averages_of_float16_depend_on_the_accumulator(
    evaluated: Evaluated, exclude: bool
) -> None:
    x = noise(1, 8, 40, 40).astype(np.float16)
    options = {
        "kernel_sizes": [40, 40],
        "pad_type": "valid",
        "exclude_padding_from_average": exclude,
    }

    exact, rough = (
        evaluated("avg_pool", {"x": x}, accumulate=dtype, **options)
        for dtype in (torch.float32, torch.float16)
    )

    assert not torch.equal(exact, rough)
    close(rough, torch.from_numpy(x).double().mean((2, 3), keepdim=True), 1e-3)


REFUSED: dict[str, dict[str, Any]] = {
    "pads without custom": {"pad_type": "valid", "pad": torch.tensor([1, 1])},
    "unknown pad type": {"pad_type": "SAME"},
    "ceil of same": {"pad_type": "same", "ceil_mode": torch.tensor(True)},
    "ceil of uneven": {
        "pad_type": "custom",
        "pad": torch.tensor([0, 1]),
        "ceil_mode": torch.tensor(True),
    },
    "empty": {"pad_type": "valid", "x": torch.ones(1, 1, 0)},
    "integers": {"pad_type": "valid", "x": torch.ones(1, 1, 5).int()},
    "ceil in three dimensions": {
        "pad_type": "valid",
        "x": torch.ones(1, 1, 5, 5, 5),
        "kernel_sizes": torch.tensor([3, 3, 3]),
        "ceil_mode": torch.tensor(True),
    },
}


@pytest.mark.parametrize("kind", ["avg_pool", "max_pool"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_documented_is_refused(direct: Evaluated, kind: str, case: str) -> None:
    arguments = {"x": torch.ones(1, 1, 5), "kernel_sizes": torch.tensor([3]), **REFUSED[case]}

    with pytest.raises(UnverifiableError):
        direct(kind, arguments)


def test_same_lower_is_refused_before_ios16(direct: Evaluated) -> None:
    arguments = {
        "x": torch.ones(1, 1, 5),
        "kernel_sizes": torch.tensor([3]),
        "pad_type": "same_lower",
    }

    assert direct("max_pool", arguments, opset=6).shape == (1, 1, 5)
    with pytest.raises(UnverifiableError, match="iOS 15"):
        direct("max_pool", arguments, opset=5)


DAMAGED: dict[str, dict[str, Any]] = {
    "no pad type": {},
    "window": {"pad_type": "valid", "kernel_sizes": torch.tensor([6])},
    "window of 0": {"pad_type": "valid", "kernel_sizes": torch.tensor([0])},
    "two windows": {"pad_type": "valid", "kernel_sizes": torch.tensor([3, 3])},
    "rank": {"pad_type": "valid", "x": torch.ones(1, 5)},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_contradictions_are_damage(direct: Evaluated, case: str) -> None:
    arguments = {"x": torch.ones(1, 1, 5), "kernel_sizes": torch.tensor([3]), **DAMAGED[case]}

    with pytest.raises(InputFileError, match="damaged"):
        direct("max_pool", arguments)


def test_l2_pooling_of_three_dimensions_is_damage(direct: Evaluated) -> None:
    arguments = {
        "x": torch.ones(1, 1, 5, 5, 5),
        "kernel_sizes": torch.tensor([3, 3, 3]),
        "pad_type": "valid",
    }

    with pytest.raises(InputFileError, match="rank 5"):
        direct("l2_pool", arguments)
