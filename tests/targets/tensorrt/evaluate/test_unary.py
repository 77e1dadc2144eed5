"""UNARY: every UnaryOperation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper
from scipy import special

Evaluated = Callable[..., Any]


def unary(op: str) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        return network.add_unary(x, getattr(trt.UnaryOperation, op)).get_output(0)

    return build


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RECIP": np.reciprocal,
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "ASINH": np.arcsinh,
    "ACOSH": np.arccosh,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ERF": special.erf,
    "SIGN": np.sign,
    "ROUND": np.round,
}


@pytest.mark.parametrize("op", sorted(_FUNCTIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats(evaluated: Evaluated, op: str, dtype: torch.dtype) -> None:
    """On values that lie inside, on and outside the domains of the functions."""
    x = torch.tensor([-2.5, -1.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0]).to(dtype)
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(_FUNCTIONS[op](x.double().numpy())).to(dtype)
    found = evaluated(unary(op), x)
    torch.testing.assert_close(found, expected, equal_nan=True)
    if dtype == torch.float16:
        assert torch.equal(found.isnan(), expected.isnan())
        assert (found - expected).nan_to_num().abs().max() <= torch.finfo(dtype).eps * 16


def test_every_operation_is_known() -> None:
    others = {"NOT", "ISINF", "ISNAN"}
    assert set(trt.UnaryOperation.__members__) == set(_FUNCTIONS) | others


def test_what_a_float_is(evaluated: Evaluated) -> None:
    x = torch.tensor([1.0, float("inf"), -float("inf"), float("nan")])
    assert evaluated(unary("ISINF"), x).tolist() == [False, True, True, False]
    assert evaluated(unary("ISNAN"), x).tolist() == [False, False, False, True]
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(unary("SIGN"), x)


def test_integers_and_booleans(evaluated: Evaluated) -> None:
    for dtype in (torch.int32, torch.int64):
        x = torch.tensor([-3, 0, 4], dtype=dtype)
        assert evaluated(unary("ABS"), x).tolist() == [3, 0, 4]
        assert evaluated(unary("NEG"), x).tolist() == [3, 0, -4]
        assert evaluated(unary("SIGN"), x).tolist() == [-1, 0, 1]
    assert evaluated(unary("NOT"), torch.tensor([True, False])).tolist() == [False, True]


def test_unary_is_seen(seen: Callable[..., bool]) -> None:
    assert seen(unary("EXP"), (torch.randn(3),), "UNARY", op="LOG")
    assert seen(unary("EXP"), (torch.randn(3),), "UNARY", op="NEW")


@pytest.mark.parametrize("op", ["Round", "Erf", "Reciprocal", "Sign", "Ceil"])
def test_onnx_nodes(against_onnxruntime: Callable[..., None], op: str) -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3], np.float32)
    against_onnxruntime(helper.make_node(op, ["x"], ["y"]), {"x": x})
