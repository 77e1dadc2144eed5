"""CAST and IDENTITY between dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError

Evaluated = Callable[..., Any]
HALVES = (torch.float16, torch.bfloat16)


def cast(name: str) -> Callable[..., Any]:
    return lambda net, x: net.add_cast(x, getattr(trt, name)).get_output(0)


def refused(evaluated: Evaluated, name: str, *values: float, dtype: torch.dtype) -> None:
    for value in values:
        with pytest.raises(UnverifiableError):
            evaluated(cast(name), torch.tensor([value], dtype=dtype))


@pytest.mark.parametrize("target", ["int8", "int32", "int64"])
@pytest.mark.parametrize("source", [torch.float32, *HALVES])
def test_floats_are_truncated_toward_zero(
    evaluated: Evaluated, source: torch.dtype, target: str
) -> None:
    x = torch.tensor([-2.75, -1.0, -0.5, 0.0, 0.5, 1.5, 100.0], dtype=source)
    found = evaluated(cast(target), x)
    assert found.dtype == getattr(torch, target)
    assert found.tolist() == [-2, -1, 0, 0, 0, 1, 100]


def test_what_fits_an_integer_exactly_and_what_does_not(evaluated: Evaluated) -> None:
    """The float below 2^31 and -2^31 fit; 2^31, NaN and infinity do not."""
    largest = 2.0**31 - 128
    x = torch.tensor([largest, -(2.0**31), -128.9])
    assert evaluated(cast("int32"), x).tolist() == [2**31 - 128, -(2**31), -128]
    refused(evaluated, "int32", 2.0**31, float("nan"), float("-inf"), dtype=torch.float32)
    refused(evaluated, "int64", 2.0**63, dtype=torch.float32)
    refused(evaluated, "int8", 128.0, -129.0, dtype=torch.float16)
    assert evaluated(cast("int32"), torch.tensor([2**31 - 1, -(2**31)])).tolist() == [
        2**31 - 1,
        -(2**31),
    ]
    refused(evaluated, "int32", 2**31, -(2**31) - 1, dtype=torch.int64)
    assert evaluated(cast("int64"), torch.tensor([-5], dtype=torch.int32)).tolist() == [-5]


def test_to_bool(evaluated: Evaluated) -> None:
    """NaN and fractions are left open: they might be truncated first."""
    for dtype in (torch.float32, torch.float16, torch.int32, torch.int64):
        x = torch.tensor([0, 1, -1, 3], dtype=dtype)
        assert evaluated(cast("bool"), x).tolist() == [False, True, True, True]
    refused(evaluated, "bool", 0.5, -0.25, float("nan"), dtype=torch.float32)


def test_from_bool(evaluated: Evaluated) -> None:
    x = torch.tensor([True, False])
    for name in ("float32", "float16", "bfloat16", "int32", "int64"):
        assert evaluated(cast(name), x).tolist() == [1, 0]


def test_floats_are_rounded_once_to_the_nearest(evaluated: Evaluated) -> None:
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 70000.0, float("nan"), -float("inf")])
    half = evaluated(cast("float16"), x).tolist()
    assert half[:3] == [1.0, 1 + 2**-9, float("inf")]
    assert half[3] != half[3]
    assert half[4] == -float("inf")
    assert evaluated(cast("bfloat16"), torch.tensor([1 + 2**-8])).tolist() == [1.0]
    assert evaluated(cast("float32"), torch.tensor([2**24 + 1])).tolist() == [2.0**24]


def test_identity_keeps_values(evaluated: Evaluated) -> None:
    for dtype in (torch.float32, torch.int64, torch.bool, *HALVES):
        x = torch.tensor([1, 0, 1]).to(dtype)
        assert torch.equal(evaluated(lambda net, x: net.add_identity(x).get_output(0), x), x)


@pytest.mark.parametrize("name", ["int4", "fp4"])
def test_dtypes_without_operators_in_torch_are_refused(evaluated: Evaluated, name: str) -> None:
    with pytest.raises(UnverifiableError, match=f"it is of {name}"):
        evaluated(cast(name), torch.ones(2))


def test_casts_are_seen(seen: Callable[..., bool]) -> None:
    for name in ("float16", "fp8", "int4", "new"):
        assert seen(cast("int32"), (torch.ones(2),), "CAST", to_type=name)
