"""QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError

Evaluated = Callable[..., Any]


def both(
    scale: np.ndarray[Any, Any],
    target: Any = trt.int8,
    axis: int | None = None,
    block: tuple[int, ...] | None = None,
    back: Any = trt.float32,
) -> Callable[..., Any]:
    """Quantise and back."""

    def build(network: Any, x: Any) -> Any:
        factor = network.add_constant(scale.shape, scale).get_output(0)
        quantize = network.add_quantize(x, factor, target)
        dequantize = network.add_dequantize(quantize.get_output(0), factor, back)
        for layer in (quantize, dequantize):
            if axis is not None:
                layer.axis = axis
            if block is not None:
                layer.block_shape = block
        return dequantize.get_output(0)

    return build


def scalar(value: float) -> np.ndarray[Any, Any]:
    return np.array(value, np.float32)


def test_ties_to_even_and_the_ends_of_int8(evaluated: Evaluated) -> None:
    x = torch.tensor([0.25, 0.75, 1.25, -0.25, -0.75, 0.3, 1e6, -1e6, 63.6, -64.2])
    found = evaluated(both(scalar(0.5)), x) / 0.5
    assert found.tolist() == [0, 2, 2, 0, -2, 1, 127, -128, 127, -128]


def test_fp8_rounds_to_even_and_saturates(evaluated: Evaluated) -> None:
    """Between 16 and 32 the step of e4m3 is 2; its largest is 448."""
    x = torch.tensor([17.0, 19.0, 21.0, 18.5, 1e6, -1e6, 470.0])
    found = evaluated(both(scalar(1.0), trt.fp8), x)
    assert found.tolist() == [16.0, 20.0, 20.0, 18.0, 448.0, -448.0, 448.0]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scales_along_an_axis(evaluated: Evaluated, axis: int) -> None:
    x = torch.randn(2, 3, 4)
    scale = np.linspace(0.01, 0.1, x.shape[axis], dtype=np.float32)
    shape = [-1 if index == axis else 1 for index in range(3)]
    factor = scale.astype(np.float64).reshape(shape)
    steps = np.clip(np.round(x.numpy() / scale.reshape(shape)), -128, 127)
    found = evaluated(both(scale, axis=axis), x)
    torch.testing.assert_close(found, torch.from_numpy(steps * factor).float())


def test_blocks(evaluated: Evaluated) -> None:
    """A scale for each 1 x 2 block."""
    x = torch.randn(2, 4)
    scale = np.array([[0.01, 0.02], [0.03, 0.04]], np.float32)
    whole = scale.repeat(2, 1)
    steps = np.clip(np.round(x.numpy() / whole), -128, 127)
    found = evaluated(both(scale, block=(1, 2)), x)
    torch.testing.assert_close(found, torch.from_numpy(steps * whole))


def test_back_to_halves_rounds_once(evaluated: Evaluated) -> None:
    x = torch.randn(8).half()
    scale = np.array(0.037, np.float16)
    steps = np.round(x.float().numpy() / np.float32(scale))
    found = evaluated(both(scale, back=trt.float16), x)
    assert torch.equal(found, torch.from_numpy((steps * float(scale)).astype(np.float16)))


def test_nan_and_zero_points_are_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="NaN"):
        evaluated(both(scalar(0.5)), torch.tensor([float("nan")]))

    def build(network: Any, x: Any) -> Any:
        scale = network.add_constant((), scalar(0.5)).get_output(0)
        zero = network.add_constant((1,), np.array([3], np.int8)).get_output(0)
        quantize = network.add_quantize(x, scale, trt.int8)
        quantize.set_input(2, zero)
        return network.add_dequantize(quantize.get_output(0), scale, trt.float32).get_output(0)

    with pytest.raises(UnverifiableError, match="zero point"):
        evaluated(build, torch.randn(3))


@pytest.mark.parametrize("kind", ["QUANTIZE", "DEQUANTIZE"])
def test_every_attribute_is_seen(seen: Callable[..., bool], kind: str) -> None:
    x = (torch.randn(2, 2),)
    build = both(np.array([0.01, 0.05], np.float32), axis=0)
    assert seen(build, x, kind, axis=1)
    assert seen(build, x, kind, to_type="int4" if kind == "QUANTIZE" else "float16")
    blocked = both(np.array([[0.01, 0.05]], np.float32), block=(2, 1))
    assert seen(blocked, x, kind, block_shape=(1, 2))
