"""REDUCE, TOPK and SOFTMAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]


def reduced(op: str, axes: int, keep: bool = False) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        return network.add_reduce(x, getattr(trt.ReduceOperation, op), axes, keep).get_output(0)

    return build


_REDUCTIONS = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}


@pytest.mark.parametrize("op", sorted(_REDUCTIONS))
@pytest.mark.parametrize(("axes", "keep"), [(0b001, False), (0b110, True), (0b111, False)])
def test_floats(evaluated: Evaluated, op: str, axes: int, keep: bool) -> None:
    x = torch.randn(2, 3, 4)
    over = tuple(axis for axis in range(3) if axes >> axis & 1)
    expected = torch.as_tensor(_REDUCTIONS[op](x.double().numpy(), axis=over, keepdims=keep))
    torch.testing.assert_close(evaluated(reduced(op, axes, keep), x), expected.float())


def test_integers_do_not_overflow_and_average_only_where_that_is_one(evaluated: Evaluated) -> None:
    x = torch.tensor([[2**31 - 1, 1], [-3, -5]], dtype=torch.int32)
    with pytest.raises(UnverifiableError, match="overflows"):
        evaluated(reduced("SUM", 0b10), x)
    with pytest.raises(UnverifiableError, match="overflows"):
        evaluated(reduced("PROD", 0b01), x)
    assert evaluated(reduced("SUM", 0b01), x).tolist() == [2**31 - 4, -4]
    assert evaluated(reduced("PROD", 0b10), x).tolist() == [2**31 - 1, 15]
    assert evaluated(reduced("MIN", 0b01), x).tolist() == [-3, -5]
    assert evaluated(reduced("AVG", 0b10), x).tolist() == [2**30, -4]
    with pytest.raises(UnverifiableError, match="average of integers"):
        evaluated(reduced("AVG", 0b10), x + torch.tensor([1, 0], dtype=torch.int32))


@pytest.mark.parametrize(
    ("op", "floats", "integers"),
    [
        ("SUM", 0.0, 0),
        ("PROD", 1.0, 1),
        ("MAX", -float("inf"), -(2**31)),
        ("MIN", float("inf"), 2**31 - 1),
        ("AVG", float("nan"), 0),
    ],
)
def test_of_nothing(evaluated: Evaluated, op: str, floats: float, integers: int) -> None:
    """The table of ReduceOperation in the C++ reference."""
    for dtype, expected in ((torch.float32, floats), (torch.int32, integers)):
        x = torch.zeros(2, 0, dtype=dtype)
        found = evaluated(reduced(op, 0b10), x, shapes=[(2, -1)])
        wanted = torch.full((2,), expected, dtype=dtype)
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_bytes_are_refused(evaluated: Evaluated) -> None:
    """They stand for quantised floats, whose sums are not those of the bytes."""
    x = torch.ones(2, 3, dtype=torch.int8)
    for build in (reduced("SUM", 1), topk("MAX", 1, 0b10)):
        with pytest.raises(UnverifiableError, match="int8"):
            evaluated(build, x)


def test_a_maximum_among_nan_is_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(reduced("MAX", 1), torch.tensor([float("nan"), 1.0]))


@pytest.mark.parametrize(
    "change", [{"axes": 0b100}, {"keep_dims": True}, {"op": "MAX"}, {"op": "NONE"}]
)
def test_reduce_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    assert seen(reduced("SUM", 0b010), (torch.randn(2, 3, 3),), "REDUCE", **change)


def topk(op: str, k: int, axes: int, values_only: bool = False) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        layer = network.add_topk(x, getattr(trt.TopKOperation, op), k, axes)
        return layer.get_output(0) if values_only else (layer.get_output(0), layer.get_output(1))

    return build


def test_the_largest_and_smallest_in_order(evaluated: Evaluated) -> None:
    x = torch.tensor([[3.0, -1.0, 7.0, 5.0], [0.0, 9.0, -4.0, 2.0]])
    values, indices = evaluated(topk("MAX", 2, 0b10), x)
    assert values.tolist() == [[7.0, 5.0], [9.0, 2.0]]
    assert indices.tolist() == [[2, 3], [1, 3]]
    assert indices.dtype == torch.int32
    values, indices = evaluated(topk("MIN", 1, 0b01), x)
    assert values.tolist() == [[0.0, -1.0, -4.0, 2.0]]
    assert indices.tolist() == [[1, 0, 1, 1]]


def test_ties_are_refused_where_they_decide_indices_that_are_used(evaluated: Evaluated) -> None:
    inf = float("inf")
    for row in ([1.0, 5.0, 5.0], [5.0, 1.0, 1.0], [inf, inf, 1.0]):
        with pytest.raises(UnverifiableError, match="tie"):
            evaluated(topk("MAX", 2, 0b10), torch.tensor([row]))
    values = evaluated(topk("MAX", 2, 0b10, values_only=True), torch.tensor([[1.0, 5.0, 5.0]]))
    assert values.tolist() == [[5.0, 5.0]]
    below = evaluated(topk("MAX", 1, 0b10), torch.tensor([[5.0, 1.0, 1.0]]))
    assert below[1].tolist() == [[0]]


def test_k_of_an_input_overrides_the_attribute(evaluated: Evaluated) -> None:
    def build(network: Any, x: Any) -> Any:
        layer = network.add_topk(x, trt.TopKOperation.MAX, 1, 0b10)
        layer.set_input(1, network.add_constant((), np.array(3, np.int32)).get_output(0))
        return layer.get_output(0)

    assert evaluated(build, torch.arange(4.0)[None]).tolist() == [[3.0, 2.0, 1.0]]


@pytest.mark.parametrize(
    "change",
    [{"axes": 0b01}, {"k": 2}, {"k": 4}, {"op": "MIN"}, {"op": "NEW"}, {"indices_type": "int64"}],
)
def test_topk_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    assert seen(topk("MAX", 1, 0b10), (torch.randn(3, 3),), "TOPK", **change)


def softmax(axes: int) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        layer = network.add_softmax(x)
        layer.axes = axes
        return layer.get_output(0)

    return build


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_softmax(evaluated: Evaluated, dtype: torch.dtype) -> None:
    x = (30 * torch.randn(2, 3, 4)).to(dtype)
    for axis in range(3):
        exponentials = torch.exp(x.double() - x.double().amax(axis, keepdim=True))
        expected = (exponentials / exponentials.sum(axis, keepdim=True)).to(dtype)
        torch.testing.assert_close(evaluated(softmax(1 << axis), x), expected)


@pytest.mark.parametrize("axes", [0b100, 0b110, 0])
def test_softmax_is_seen(seen: Callable[..., bool], axes: int) -> None:
    assert seen(softmax(0b010), (torch.randn(2, 3, 3),), "SOFTMAX", axes=axes)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("ReduceMean", {"keepdims": 0}),
        ("ReduceL2", {}),
        ("ReduceLogSumExp", {}),
        ("LogSoftmax", {"axis": 1}),
        ("Softmax", {"axis": -1}),
        ("CumSum", {"exclusive": 1, "reverse": 1}),
        ("TopK", {"axis": 1, "largest": 0}),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any]
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    constants: dict[str, np.ndarray[Any, Any]] = {}
    if op.startswith("Reduce"):
        constants["axes"] = np.array([-1, 0])
    elif op == "CumSum":
        constants["axes"] = np.array(-1)
    elif op == "TopK":
        constants["k"] = np.array([2])
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    node = helper.make_node(op, ["x", *constants], outputs, **attributes)
    against_onnxruntime(node, {"x": x}, constants)
