"""ELEMENTWISE, PARAMETRIC_RELU, SCALE and CUMULATIVE by their documented definitions."""

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


def binary(op: str) -> Callable[..., Any]:
    def build(network: Any, first: Any, second: Any) -> Any:
        operation = getattr(trt.ElementWiseOperation, op)
        return network.add_elementwise(first, second, operation).get_output(0)

    return build


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("SUM", [[4.5, 1.0], [0.0, -3.5]]),
        ("PROD", [[3.5, -6.0], [-1.0, 3.0]]),
        ("SUB", [[2.5, 5.0], [-2.0, -0.5]]),
        ("DIV", [[3.5, -1.5], [-1.0, 2.0 / 1.5]]),
        ("FLOOR_DIV", [[3.0, -2.0], [-1.0, 1.0]]),
        ("MAX", [[3.5, 3.0], [1.0, -1.5]]),
        ("MIN", [[1.0, -2.0], [-1.0, -2.0]]),
        ("EQUAL", [[False, False], [False, False]]),
        ("GREATER", [[True, True], [False, False]]),
        ("LESS", [[False, False], [True, True]]),
    ],
)
def test_floats(evaluated: Evaluated, op: str, expected: list[Any]) -> None:
    first = torch.tensor([[3.5, 3.0], [-1.0, -2.0]])
    second = torch.tensor([[1.0, -2.0], [1.0, -1.5]])
    torch.testing.assert_close(evaluated(binary(op), first, second), torch.tensor(expected))


def test_powers_and_their_edges(evaluated: Evaluated) -> None:
    bases = torch.tensor([2.0, -2.0, 0.0, 4.0, -1.0])
    exponents = torch.tensor([3.0, 2.0, 0.0, 0.5, 0.5])
    found = evaluated(binary("POW"), bases, exponents)
    torch.testing.assert_close(
        found, torch.tensor([8.0, 4.0, 1.0, 2.0, float("nan")]), equal_nan=True
    )
    with pytest.raises(UnverifiableError, match="computes with int32"):
        evaluated(binary("POW"), bases.int(), exponents.int())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_truncate_or_floor_and_do_not_overflow(
    evaluated: Evaluated, dtype: torch.dtype
) -> None:
    first = torch.tensor([7, -7, 7, -7], dtype=dtype)
    second = torch.tensor([2, 2, -2, -2], dtype=dtype)
    assert evaluated(binary("DIV"), first, second).tolist() == [3, -3, -3, 3]
    assert evaluated(binary("FLOOR_DIV"), first, second).tolist() == [3, -4, -4, 3]
    ends = torch.iinfo(dtype)
    top = torch.tensor([ends.max], dtype=dtype)
    one, two = top // top, top // top * 2
    for op, second in (("SUM", one), ("PROD", two), ("SUB", -one)):
        with pytest.raises(UnverifiableError, match="overflows"):
            evaluated(binary(op), top, second)
    assert evaluated(binary("SUM"), top - one, one // one).dtype == dtype
    second = torch.tensor([2, 2, -2, -2], dtype=dtype)
    assert evaluated(binary("DIV"), first, second).dtype == dtype


@pytest.mark.parametrize("op", ["DIV", "FLOOR_DIV"])
def test_integer_quotients_that_are_not_defined_are_refused(evaluated: Evaluated, op: str) -> None:
    lowest = torch.tensor([-(2**31)], dtype=torch.int32)
    for divisor in (0, -1):
        with pytest.raises(UnverifiableError):
            evaluated(binary(op), lowest, torch.tensor([divisor], dtype=torch.int32))


def test_a_floor_within_rounding_of_an_integer_is_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="within rounding"):
        evaluated(binary("FLOOR_DIV"), torch.tensor([1.0]), torch.tensor([0.1]))


@pytest.mark.parametrize("op", ["MAX", "MIN"])
def test_what_a_comparison_with_nan_picks_is_refused(evaluated: Evaluated, op: str) -> None:
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(binary(op), torch.tensor([float("nan")]), torch.tensor([1.0]))


def test_logic(evaluated: Evaluated) -> None:
    first = torch.tensor([True, True, False, False])
    second = torch.tensor([True, False, True, False])
    for op, expected in (
        ("AND", [True, False, False, False]),
        ("OR", [True, True, True, False]),
        ("XOR", [False, True, True, False]),
        ("EQUAL", [True, False, False, True]),
    ):
        assert evaluated(binary(op), first, second).tolist() == expected


def test_what_is_documented_for_other_types_alone_is_refused(
    seen: Callable[..., bool], evaluated: Evaluated
) -> None:
    booleans = (torch.tensor([True, False]), torch.tensor([True, True]))
    for op in ("LESS", "SUM", "MAX"):
        assert seen(binary("AND"), booleans, "ELEMENTWISE", op=op)
    integers = (torch.tensor([1, 0]), torch.tensor([1, 1]))
    assert seen(binary("SUM"), integers, "ELEMENTWISE", op="AND")
    bytes_ = torch.tensor([100], dtype=torch.int8)
    with pytest.raises(UnverifiableError, match="computes with int8"):
        evaluated(binary("SUM"), bytes_, bytes_)


def test_sizes_of_one_stand_for_any(evaluated: Evaluated) -> None:
    first, second = torch.randn(2, 1, 3), torch.randn(1, 4, 3)
    found = evaluated(binary("SUB"), first, second)
    torch.testing.assert_close(found, first - second)
    empty = evaluated(binary("SUM"), torch.randn(0, 1), torch.randn(1, 3), shapes=[(-1, 1), (1, 3)])
    assert empty.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_are_rounded_once(evaluated: Evaluated, dtype: torch.dtype) -> None:
    def build(network: Any, x: Any, y: Any) -> Any:
        layer = network.add_cumulative(x, axis(network, 0), trt.CumulativeOperation.SUM, 0, 0)
        return layer.get_output(0)

    first = torch.full((9,), 0.1).to(dtype)
    expected = torch.cumsum(first.double(), 0).to(dtype)
    assert torch.equal(evaluated(build, first, first), expected)
    stepwise = torch.zeros((), dtype=dtype)
    for item in first:
        stepwise = stepwise + item
    assert stepwise != expected[-1]  # so rounding each step would have shown


def axis(network: Any, index: int) -> Any:
    return network.add_constant((), np.array(index, np.int32)).get_output(0)


def test_elementwise_is_seen(seen: Callable[..., bool]) -> None:
    inputs = (torch.randn(4), torch.randn(4))
    assert seen(binary("SUM"), inputs, "ELEMENTWISE", op="SUB")
    assert seen(binary("SUM"), inputs, "ELEMENTWISE", op="NEW")


def test_parametric_relu(evaluated: Evaluated) -> None:
    def build(network: Any, x: Any, slopes: Any) -> Any:
        return network.add_parametric_relu(x, slopes).get_output(0)

    x, slopes = torch.randn(2, 3, 4), torch.randn(1, 3, 1)
    found = evaluated(build, x, slopes)
    torch.testing.assert_close(found, torch.where(x < 0, x * slopes, x))


def scaled(mode: str, count: int, channel_axis: int = 1, power: float = 2.0) -> Callable[..., Any]:
    # TensorRT does not copy weights: they must outlive the network.
    shift = np.arange(1, count + 1, dtype=np.float32)
    scale, powers = shift / 2, np.full(count, power, np.float32)

    def build(network: Any, x: Any) -> Any:
        kind = getattr(trt.ScaleMode, mode)
        return network.add_scale_nd(x, kind, shift, scale, powers, channel_axis).get_output(0)

    return build


@pytest.mark.parametrize(
    ("mode", "count", "channel_axis", "shape"),
    [
        ("UNIFORM", 1, 1, (1, 1, 1, 1)),
        ("CHANNEL", 3, 1, (1, 3, 1, 1)),
        ("CHANNEL", 4, 2, (1, 1, 4, 1)),
        ("ELEMENTWISE", 60, 1, (3, 4, 5)),
        ("ELEMENTWISE", 20, 2, (4, 5)),
    ],
)
def test_scale(
    evaluated: Evaluated, mode: str, count: int, channel_axis: int, shape: tuple[int, ...]
) -> None:
    x = torch.rand(2, 3, 4, 5)
    values = torch.arange(1, count + 1).reshape(shape).double()
    expected = (x.double() * (values / 2) + values) ** 2
    found = evaluated(scaled(mode, count, channel_axis), x)
    torch.testing.assert_close(found, expected.float())


def test_weights_of_a_scale_that_are_not_set(evaluated: Evaluated) -> None:
    def build(network: Any, x: Any) -> Any:
        return network.add_scale(x, trt.ScaleMode.UNIFORM).get_output(0)

    x = torch.randn(2, 3, 4)
    assert torch.equal(evaluated(build, x), x)


def test_scale_is_seen(seen: Callable[..., bool]) -> None:
    x, ones = (torch.rand(2, 3, 3),), np.full(3, 7, np.float32)
    assert seen(scaled("CHANNEL", 3), x, "SCALE", mode="UNIFORM")
    assert seen(scaled("CHANNEL", 3), x, "SCALE", channel_axis=2)
    for name in ("scale", "shift", "power"):
        assert seen(scaled("CHANNEL", 3), x, "SCALE", **{name: ones})


def cumulative(along: int, exclusive: bool, reverse: bool) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        kind = trt.CumulativeOperation.SUM
        layer = network.add_cumulative(x, axis(network, along), kind, exclusive, reverse)
        return layer.get_output(0)

    return build


def test_cumulative_sums(evaluated: Evaluated) -> None:
    x = torch.tensor([[1, 2, 3], [10, 20, 30]])
    for exclusive, reverse, row in (
        (False, False, [1, 3, 6]),
        (True, False, [0, 1, 3]),
        (False, True, [6, 5, 3]),
        (True, True, [5, 3, 0]),
    ):
        found = evaluated(cumulative(1, exclusive, reverse), x)
        assert found.tolist() == [row, [10 * item for item in row]]
        assert evaluated(cumulative(1, exclusive, reverse), x.float()).tolist() == found.tolist()
    assert evaluated(cumulative(0, False, False), x).tolist() == [[1, 2, 3], [11, 22, 33]]
    assert evaluated(cumulative(-2, False, False), x).tolist() == [[1, 2, 3], [11, 22, 33]]


def test_cumulative_is_seen(seen: Callable[..., bool]) -> None:
    x = (torch.randn(2, 3),)
    assert seen(cumulative(1, False, False), x, "CUMULATIVE", exclusive=True)
    assert seen(cumulative(1, False, False), x, "CUMULATIVE", reverse=True)
    assert seen(cumulative(1, False, False), x, "CUMULATIVE", op="PROD")


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Mod", {}), ("Mod", {"fmod": 1}), ("Div", {}), ("Pow", {}), ("Max", {})],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any]
) -> None:
    values = np.array([[7.5, -7.5, 3.25], [-1.25, 4.0, 6.5]], np.float32)
    others = np.array([[2.0, 2.0, -1.5]], np.float32)
    if op == "Mod" and not attributes:
        values, others = values.astype(np.int32), others.astype(np.int32)
    if op == "Pow":
        values = np.abs(values)
    node = helper.make_node(op, ["a", "b"], ["y"], **attributes)
    against_onnxruntime(node, {"a": values, "b": others})
