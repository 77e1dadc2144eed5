"""NORMALIZATION and LRN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

Evaluated = Callable[..., Any]


def normalization(
    axes: int, groups: int = 1, epsilon: float = 1e-5, second: bool = True
) -> Callable[..., Any]:
    def build(network: Any, x: Any, scale: Any, bias: Any) -> Any:
        add = network.add_normalization_v2 if second else network.add_normalization
        made = add(x, scale, bias, axes)
        made.epsilon, made.num_groups = epsilon, groups
        return made.get_output(0)

    return build


def normalized(x: torch.Tensor, axes: tuple[int, ...], epsilon: float) -> torch.Tensor:
    array = x.double().numpy()
    centred = array - array.mean(axes, keepdims=True)
    spread = np.sqrt(array.var(axes, keepdims=True) + epsilon)
    return torch.from_numpy(centred / spread)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
@pytest.mark.parametrize(
    ("axes", "over", "scales"),
    [
        (0b1100, (2, 3), (1, 4, 1, 1)),  # instances
        (0b1000, (3,), (1, 1, 1, 6)),  # layers
        (0b1110, (1, 2, 3), (1, 4, 5, 6)),
    ],
)
def test_axes(
    evaluated: Evaluated, axes: int, over: tuple[int, ...], scales: tuple[int, ...], epsilon: float
) -> None:
    x, scale, bias = torch.randn(2, 4, 5, 6), torch.randn(scales), torch.randn(scales)
    expected = normalized(x, over, epsilon) * scale + bias
    for second in (True, False):
        found = evaluated(normalization(axes, 1, epsilon, second), x, scale, bias)
        torch.testing.assert_close(found, expected.float())


@pytest.mark.parametrize("second", [True, False])
def test_groups(evaluated: Evaluated, second: bool) -> None:
    """The second version scales channels, the first groups."""
    x = torch.randn(2, 6, 4, 3)
    scale, bias = torch.randn(2, 1, 6 if second else 3, 1, 1)
    normal = normalized(x.reshape(2, 3, 2, 4, 3), (2, 3, 4), 0.1).reshape(x.shape)
    each = [part if second else part.repeat_interleave(2, 1) for part in (scale, bias)]
    found = evaluated(normalization(0b1100, 3, 0.1, second), x, scale, bias)
    torch.testing.assert_close(found, (normal * each[0] + each[1]).float())


def test_groups_over_other_axes_are_refused(seen: Callable[..., bool]) -> None:
    inputs = (torch.randn(2, 4, 3, 3), torch.randn(1, 4, 1, 1), torch.randn(1, 4, 1, 1))
    assert seen(normalization(0b1100, 2), inputs, "NORMALIZATION", axes=0b1000)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_keep_the_precision_of_float32(
    evaluated: Evaluated, dtype: torch.dtype
) -> None:
    x = (torch.randn(2, 4, 64) * 0.1 + 20).to(dtype)
    one, zero = torch.ones(1, 1, 64).to(dtype), torch.zeros(1, 1, 64).to(dtype)
    expected = normalized(x, (2,), 1e-5).to(dtype)
    torch.testing.assert_close(evaluated(normalization(0b100), x, one, zero), expected)


@pytest.mark.parametrize(
    "change", [{"epsilon": 0.1}, {"axes": 0b0100}, {"num_groups": 2}, {"is_v2": False}]
)
def test_normalization_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    inputs = (torch.randn(2, 4, 3, 3), torch.randn(1, 4, 1, 1), torch.randn(1, 4, 1, 1))
    groups = 4 if "is_v2" in change else 1
    if "is_v2" in change:
        inputs = (torch.randn(2, 4, 3, 3), torch.randn(1, 2, 1, 1).repeat(1, 2, 1, 1), inputs[2])
        groups = 2
    assert seen(normalization(0b1100, groups), inputs, "NORMALIZATION", **change)


def lrn(window: int, alpha: float, beta: float, k: float) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        return network.add_lrn(x, window, alpha, beta, k).get_output(0)

    return build


def test_the_example_of_the_operator_page(evaluated: Evaluated) -> None:
    x = torch.arange(5.0).reshape(1, 5, 1, 1).expand(1, 5, 2, 2).contiguous()
    found = evaluated(lrn(3, 1, 1, 0.1), x)
    expected = torch.tensor([0.0, 0.56603765, 0.4195804, 0.3071672, 0.47430828])
    torch.testing.assert_close(found[0, :, 1, 0], expected)


@pytest.mark.parametrize("change", [{"window_size": 3}, {"alpha": 0.5}, {"beta": 0.5}, {"k": 1.0}])
def test_lrn_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    assert seen(lrn(5, 0.75, 0.75, 2.0), (torch.randn(1, 6, 2, 2),), "LRN", **change)
    with pytest.raises(AssertionError):
        seen(lrn(5, 0.75, 0.75, 2.0), (torch.randn(1, 6, 2, 2),), "LRN", k=2.0)


@pytest.mark.parametrize(
    ("op", "attributes", "size"),
    [
        ("LayerNormalization", {"axis": -1, "epsilon": 0.1}, 6),
        ("InstanceNormalization", {"epsilon": 0.1}, 4),
        ("LRN", {"size": 3, "alpha": 0.5, "bias": 2.0}, 0),
        ("BatchNormalization", {"epsilon": 0.1}, 4),
        ("GroupNormalization", {"epsilon": 0.1, "num_groups": 2}, 4),
        ("RMSNormalization", {"epsilon": 0.1}, 6),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any], size: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 5, 6)).astype(np.float32)
    count = {"BatchNormalization": 4, "LRN": 0, "RMSNormalization": 1}.get(op, 2)
    constants = {f"c{i}": rng.random(size).astype(np.float32) for i in range(count)}
    opset = {"RMSNormalization": 23, "GroupNormalization": 21}.get(op, 20)
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    against_onnxruntime(node, {"x": x}, constants, opset=opset)
