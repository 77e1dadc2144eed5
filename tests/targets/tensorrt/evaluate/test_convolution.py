"""CONVOLUTION and DECONVOLUTION against sums written out in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]
Array = np.ndarray[Any, Any]


def layer(
    kernel: Array, bias: Array | None = None, transposed: bool = False, **attributes: Any
) -> Callable[..., Any]:
    """A layer whose kernel is weights, of torch's shape; attributes are set on it."""
    groups = attributes.get("num_groups", 1)
    maps = kernel.shape[1] * groups if transposed else kernel.shape[0]

    def build(network: Any, x: Any) -> Any:
        add = network.add_deconvolution_nd if transposed else network.add_convolution_nd
        offsets = trt.Weights() if bias is None else bias
        made = add(x, maps, kernel.shape[2:], kernel, offsets)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made.get_output(0)

    return build


def convolved(
    x: Array, kernel: Array, pads: list[tuple[int, int]], stride: Any, dilation: Any, groups: int
) -> Array:
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    size, maps = kernel.shape[2:], kernel.shape[0]
    out = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], size, stride, dilation, strict=True)
    ]
    y = np.zeros((len(x), maps, *out))
    for place in product(*map(range, out)):
        for tap in product(*map(range, size)):
            at = [p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True)]
            seen = x[(slice(None), slice(None), *at)].reshape(len(x), groups, -1)
            weight = kernel[(slice(None), slice(None), *tap)].reshape(groups, maps // groups, -1)
            sums = np.einsum("ngc,gkc->ngk", seen, weight)
            y[(slice(None), slice(None), *place)] += sums.reshape(len(x), maps)
    return y


_RNG = np.random.default_rng(0)


def random(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("pre", "post", "stride", "dilation", "groups"),
    [
        ((0, 0), (0, 0), (1, 1), (1, 1), 1),
        ((1, 2), (1, 2), (2, 1), (1, 1), 2),
        ((0, 2), (1, 0), (2, 3), (2, 1), 1),
        ((2, 1), (0, 1), (1, 1), (1, 2), 4),
    ],
)
def test_planes(
    evaluated: Evaluated, pre: Any, post: Any, stride: Any, dilation: Any, groups: int
) -> None:
    x, kernel, bias = random(2, 4, 7, 8), random(4, 4 // groups, 3, 2), random(4)
    attributes = {"pre_padding": pre, "post_padding": post, "stride_nd": stride}
    build = layer(kernel, bias, dilation_nd=dilation, num_groups=groups, **attributes)
    pads = list(zip(pre, post, strict=True))
    expected = convolved(x, kernel, pads, stride, dilation, groups) + bias[None, :, None, None]
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


@pytest.mark.parametrize("size", [6, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding(evaluated: Evaluated, size: int, stride: int, mode: str) -> None:
    """O = ceil(I / S), the odd element of the padding after (UPPER) or before (LOWER)."""
    x, kernel = random(1, 1, size, size), random(1, 1, 4, 4)
    total = (size - 1) // stride * stride + 4 - size
    less, more = total // 2, total - total // 2
    pads = [(less, more) if mode == "SAME_UPPER" else (more, less)] * 2
    expected = convolved(x, kernel, pads, (stride, stride), (1, 1), 1)
    assert expected.shape[2] == -(-size // stride)
    build = layer(kernel, stride_nd=(stride, stride), padding_mode=getattr(trt.PaddingMode, mode))
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


def test_volumes_and_halves(evaluated: Evaluated) -> None:
    x, kernel = random(1, 2, 4, 5, 3), random(3, 2, 2, 3, 1)
    expected = convolved(x, kernel, [(1, 0), (0, 0), (0, 1)], (1, 2, 1), (1, 1, 1), 1)
    attributes = {"pre_padding": (1, 0, 0), "post_padding": (0, 0, 1), "stride_nd": (1, 2, 1)}
    found = evaluated(layer(kernel, **attributes), torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())
    half = kernel.astype(np.float16)
    found = evaluated(layer(half, **attributes), torch.from_numpy(x).half())
    torch.testing.assert_close(found, torch.from_numpy(expected).half(), rtol=5e-3, atol=5e-3)


def test_kernel_and_bias_of_inputs(evaluated: Evaluated) -> None:
    def build(network: Any, x: Any, kernel: Any, bias: Any) -> Any:
        made = network.add_convolution_nd(x, 3, (2, 2), trt.Weights())
        made.set_input(1, kernel)
        made.set_input(2, bias)
        return made.get_output(0)

    x, kernel, bias = random(1, 2, 4, 4), random(3, 2, 2, 2), random(3)
    expected = convolved(x, kernel, [(0, 0)] * 2, (1, 1), (1, 1), 1) + bias[None, :, None, None]
    found = evaluated(build, *map(torch.from_numpy, (x, kernel, bias)))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


def test_a_window_beyond_the_padding_is_refused(evaluated: Evaluated) -> None:
    up = {"stride_nd": (2, 2), "padding_mode": trt.PaddingMode.EXPLICIT_ROUND_UP}
    with pytest.raises(UnverifiableError, match="beyond the padding"):
        evaluated(layer(random(1, 1, 3, 3), **up), torch.randn(1, 1, 6, 6))
    x = random(1, 1, 7, 7)
    kernel = random(1, 1, 3, 3)
    expected = convolved(x, kernel, [(0, 0)] * 2, (2, 2), (1, 1), 1)
    found = evaluated(layer(kernel, **up), torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


def transposed(x: Array, kernel: Array, stride: Any, dilation: Any, groups: int) -> Array:
    """Every element of the input lays the kernel down; nothing is cut."""
    inside, maps = kernel.shape[:2]
    size = kernel.shape[2:]
    out = [
        (n - 1) * s + d * (k - 1) + 1
        for n, s, d, k in zip(x.shape[2:], stride, dilation, size, strict=True)
    ]
    y = np.zeros((len(x), maps * groups, *out))
    for place in product(*map(range, x.shape[2:])):
        for tap in product(*map(range, size)):
            at = [p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True)]
            laid = x[(slice(None), slice(None), *place)].reshape(len(x), groups, -1)
            weight = kernel[(slice(None), slice(None), *tap)].reshape(groups, inside // groups, -1)
            sums = np.einsum("ngc,gck->ngk", laid.astype(np.float64), weight)
            y[(slice(None), slice(None), *at)] += sums.reshape(len(x), -1)
    return y


@pytest.mark.parametrize(
    ("pre", "post", "stride", "dilation", "groups"),
    [
        ((0, 0), (0, 0), (1, 1), (1, 1), 1),
        ((1, 0), (0, 2), (2, 3), (1, 1), 2),
        ((0, 1), (2, 1), (2, 2), (2, 1), 1),
    ],
)
def test_deconvolution(
    evaluated: Evaluated, pre: Any, post: Any, stride: Any, dilation: Any, groups: int
) -> None:
    x, kernel, bias = random(2, 4, 3, 4), random(4, 3, 3, 2), random(3 * groups)
    attributes = {"pre_padding": pre, "post_padding": post, "stride_nd": stride}
    build = layer(kernel, bias, True, dilation_nd=dilation, num_groups=groups, **attributes)
    whole = transposed(x, kernel, stride, dilation, groups) + bias[None, :, None, None]
    cut = whole[:, :, pre[0] : whole.shape[2] - post[0], pre[1] : whole.shape[3] - post[1]]
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(cut).float())


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_a_deconvolution(evaluated: Evaluated, stride: int, mode: str) -> None:
    """P = max(DK - S, 0) is cut, O = min(I * S, (I - 1) * S + DK) is left."""
    x, kernel = random(1, 1, 4, 4), random(1, 1, 2, 2)
    whole = transposed(x, kernel, (stride, stride), (1, 1), 1)
    total = max(2 - stride, 0)
    before = total // 2 if mode == "SAME_UPPER" else total - total // 2
    out = min(4 * stride, 3 * stride + 2)
    expected = whole[:, :, before : before + out, before : before + out]
    modes = {"padding_mode": getattr(trt.PaddingMode, mode)}
    build = layer(kernel, None, True, stride_nd=(stride, stride), **modes)
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"pre_padding": (2, 0), "post_padding": (0, 1)},
        {"pre_padding": (0, 1)},
        {"post_padding": (0, 1)},
        {"padding_mode": "SAME_LOWER"},
        {"padding_mode": "NEW"},
        {"stride_nd": (2, 1)},
        {"dilation_nd": (1, 2)},
        {"num_groups": 2},
        {"num_output_maps": 4},
        {"kernel_size_nd": (2, 3)},
        {"kernel": random(36)},
        {"bias": random(2)},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_attribute_is_seen(
    seen: Callable[..., bool], is_transposed: bool, change: dict[str, Any]
) -> None:
    padding = {"pre_padding": (1, 1), "post_padding": (1, 0)}
    build = layer(random(2, 2, 3, 3), random(2), is_transposed, **padding)
    kind = "DECONVOLUTION" if is_transposed else "CONVOLUTION"
    assert seen(build, (torch.randn(1, 2, 5, 5),), kind, **change)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Conv", {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        ("Conv", {"group": 2, "shape": (4, 1, 3)}),
        ("ConvTranspose", {"pads": [1, 0, 0, 1], "strides": [2, 3]}),
        ("ConvTranspose", {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]}),
        ("ConvTranspose", {"strides": [3, 3], "output_padding": [1, 0]}),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any]
) -> None:
    shape = attributes.pop("shape", (2, 2, 3, 3))
    x, kernel = random(2, 2, *(6, 7)[: len(shape) - 2]), random(*shape)
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    against_onnxruntime(node, {"x": x}, {"w": kernel})
