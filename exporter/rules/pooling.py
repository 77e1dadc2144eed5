"""Pooling rewritten into operators that runtimes have. Rules as in `rules`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from ..nodes import Editor, argument, tensor_value

__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "avg_pool_divisor"]

aten = torch.ops.aten


def adaptive_avg_pool(editor: Editor, node: Node) -> Any:
    """To a mean over whole axes, or an average pool where the sizes divide."""
    x, wanted = tensor_value(node.args[0]), list(argument(node, "output_size"))
    if x is None:
        return None
    rank = len(wanted)
    if all(size == 1 for size in wanted):
        axes = list(range(-rank, 0))
        return editor.call(node, aten.mean.dim, node.args[0], axes, True, value=node.meta["val"])
    kernel = _divided(list(x.shape[-rank:]), wanted)
    if kernel is None:
        return _whole_axes_first(editor, node, wanted, aten.mean.dim)
    pool = {
        1: aten.avg_pool1d.default,
        2: aten.avg_pool2d.default,
        3: aten.avg_pool3d.default,
    }[rank]
    return editor.call(node, pool, node.args[0], kernel, kernel, value=node.meta["val"])


def _whole_axes_first(editor: Editor, node: Node, wanted: list[Any], reduce: Any) -> Any:
    """Adaptive pooling where a dynamic axis becomes 1: that axis alone, then the static ones."""
    x = tensor_value(node.args[0])
    assert x is not None
    sizes = list(x.shape[-len(wanted) :])
    axes = [
        index - len(wanted)
        for index, (size, count) in enumerate(zip(sizes, wanted, strict=True))
        if isinstance(count, int) and count == 1 and not isinstance(size, int)
    ]
    if not axes:
        return None
    target: Any = node.target
    less = editor.call(node, reduce, node.args[0], axes, True)
    return editor.call(node, target, less, wanted, value=node.meta["val"])


def adaptive_max_pool(editor: Editor, node: Node) -> Any:
    """The values alone, where nothing reads the indices."""
    x, wanted = tensor_value(node.args[0]), list(argument(node, "output_size"))
    if x is None or any(user.args[1] != 0 for user in node.users):
        return None
    value = node.meta["val"][0]
    if all(size == 1 for size in wanted):
        axes = list(range(-len(wanted), 0))
        return [editor.call(node, aten.amax.default, node.args[0], axes, True, value=value), None]
    kernel = _divided(list(x.shape[-len(wanted) :]), wanted)
    if kernel is None:
        return None
    pool = {1: aten.max_pool1d.default, 2: aten.max_pool2d.default, 3: aten.max_pool3d.default}
    return [
        editor.call(node, pool[len(wanted)], node.args[0], kernel, kernel, value=value),
        None,
    ]


def _divided(sizes: list[Any], wanted: list[Any]) -> list[int] | None:
    """`sizes / wanted` if all are static and divide evenly."""
    pairs = list(zip(sizes, wanted, strict=True))
    if not all(isinstance(size, int) and isinstance(count, int) for size, count in pairs):
        return None
    if any(count == 0 or size % count for size, count in pairs):
        return None
    return [size // count for size, count in pairs]


def avg_pool_divisor(editor: Editor, node: Node) -> Any:
    """`divisor_override`: sums of full windows over zero padding, divided by it.

    In ceil mode the padding is extended until the last window is full.
    """
    divisor = argument(node, "divisor_override")
    x, result = tensor_value(node.args[0]), tensor_value(node)
    if divisor is None or x is None or result is None:
        return None
    rank = 2 if node.target is aten.avg_pool2d.default else 3
    kernel, padding = (_spread(argument(node, key), rank) for key in ("kernel_size", "padding"))
    stride = _spread(argument(node, "stride") or kernel, rank)
    sizes, counts = x.shape[-rank:], result.shape[-rank:]
    source: Any = node.args[0]
    if argument(node, "ceil_mode"):
        if not all(isinstance(size, int) for size in (*sizes, *counts)):
            return None
        borders = []
        for axis in reversed(range(rank)):
            before = padding[axis]
            reach = (counts[axis] - 1) * stride[axis] + kernel[axis]
            borders += [before, max(0, reach - sizes[axis] - before)]
        source = editor.call(node, aten.constant_pad_nd.default, source, borders, 0.0)
        padding = [0] * rank
    target: Any = node.target
    mean = editor.call(node, target, source, kernel, stride, padding, False, True)
    factor = math.prod(kernel) / divisor
    return editor.call(node, aten.mul.Scalar, mean, factor, value=node.meta["val"])


def _spread(value: Any, rank: int) -> list[int]:
    """A per-axis list from an argument that may name one size for all axes."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values
