"""POOLING against windows written out in float64."""

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


def pooling(kind: str, window: tuple[int, ...], **attributes: Any) -> Callable[..., Any]:
    def build(network: Any, x: Any) -> Any:
        made = network.add_pooling_nd(x, getattr(trt.PoolingType, kind), window)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made.get_output(0)

    return build


def pooled(
    x: Array, kind: str, window: Any, stride: Any, pads: Any, up: bool, excluding: bool
) -> Array:
    """Windows over what they see of the input (and, counting it, of the padding)."""
    sizes = x.shape[2:]
    out = []
    for n, (before, after), w, s in zip(sizes, pads, window, stride, strict=True):
        room = n + before + after - w
        out.append((-(-room // s) if up else room // s) + 1)
    y = np.zeros((*x.shape[:2], *out))
    for place in product(*map(range, out)):
        spans, count = [], 1
        axes = zip(place, stride, window, pads, sizes, strict=True)
        for p, s, w, (before, after), n in axes:
            start = p * s - before
            low, high = (0, n) if excluding else (-before, n + after)
            count *= min(start + w, high) - max(start, low)
            spans.append(slice(max(start, 0), min(start + w, n)))
        seen = x.astype(np.float64)[(slice(None), slice(None), *spans)].reshape(*x.shape[:2], -1)
        value = seen.max(-1) if kind == "MAX" else seen.sum(-1) / count
        y[(slice(None), slice(None), *place)] = value
    return y


_RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["MAX", "AVERAGE"])
@pytest.mark.parametrize("excluding", [True, False])
@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize(
    ("window", "stride", "pads"),
    [
        ((2, 2), (2, 2), [(0, 0), (0, 0)]),
        ((3, 2), (2, 1), [(1, 1), (1, 0)]),
        ((3, 3), (2, 2), [(0, 1), (2, 1)]),
        ((2, 3, 2), (2, 2, 1), [(1, 0), (1, 1), (0, 0)]),
    ],
)
def test_windows(
    evaluated: Evaluated,
    kind: str,
    excluding: bool,
    up: bool,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    pads: list[tuple[int, int]],
) -> None:
    """Values below zero: padding must never be a maximum."""
    x = (_RNG.normal(size=(2, 2, 6, 7, 5)[: len(window) + 2]) - 5).astype(np.float32)
    modes = trt.PaddingMode
    build = pooling(
        kind,
        window,
        stride_nd=stride,
        pre_padding=[before for before, _ in pads],
        post_padding=[after for _, after in pads],
        padding_mode=modes.EXPLICIT_ROUND_UP if up else modes.EXPLICIT_ROUND_DOWN,
        average_count_excludes_padding=excluding,
    )
    expected = pooled(x, kind, window, stride, pads, up, excluding)
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding(evaluated: Evaluated, mode: str) -> None:
    """The example of PaddingMode: of 6 with a window of 3 and a stride of 2, one is padded."""
    x = _RNG.normal(size=(1, 1, 6, 6)).astype(np.float32)
    pads = [(0, 1), (0, 1)] if mode == "SAME_UPPER" else [(1, 0), (1, 0)]
    expected = pooled(x, "AVERAGE", (3, 3), (2, 2), pads, False, True)
    build = pooling(
        "AVERAGE", (3, 3), stride_nd=(2, 2), padding_mode=getattr(trt.PaddingMode, mode)
    )
    found = evaluated(build, torch.from_numpy(x))
    torch.testing.assert_close(found, torch.from_numpy(expected).float())


def test_blends(evaluated: Evaluated) -> None:
    x = torch.randn(1, 2, 4, 4)
    found = evaluated(pooling("MAX_AVERAGE_BLEND", (2, 2), blend_factor=0.25), x)
    most = evaluated(pooling("MAX", (2, 2)), x)
    mean = evaluated(pooling("AVERAGE", (2, 2)), x)
    torch.testing.assert_close(found, 0.75 * most + 0.25 * mean)


def test_windows_that_see_nothing_are_refused(evaluated: Evaluated) -> None:
    for kind in ("MAX", "AVERAGE"):
        build = pooling(
            kind,
            (2, 2),
            pre_padding=(2, 0),
            stride_nd=(2, 2),
            average_count_excludes_padding=False,
        )
        with pytest.raises(UnverifiableError, match="wholly in the padding"):
            evaluated(build, torch.randn(1, 1, 4, 4))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "MAX"},
        {"type": "NEW"},
        {"pre_padding": (0, 1)},
        {"post_padding": (1, 0)},
        {"padding_mode": "SAME_LOWER"},
        {"stride_nd": (1, 2)},
        {"window_size_nd": (2, 3)},
        {"average_count_excludes_padding": False},
        {"blend_factor": 0.75},
    ],
    ids=lambda change: "-".join(f"{key}={value}" for key, value in change.items()),
)
def test_every_attribute_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    padding = {"pre_padding": (1, 1), "post_padding": (0, 0)}
    build = pooling("MAX_AVERAGE_BLEND", (3, 3), blend_factor=0.5, **padding)
    assert seen(build, (torch.randn(1, 1, 5, 5),), "POOLING", **change)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("AveragePool", {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
    ],
)
def test_onnx_nodes(
    against_onnxruntime: Callable[..., None], op: str, attributes: dict[str, Any]
) -> None:
    x = _RNG.normal(size=(1, 2, 6, 8)).astype(np.float32)
    against_onnxruntime(helper.make_node(op, ["x"], ["y"], **attributes), {"x": x})
