"""Operators in the form that TensorRT computes rightly.

Its scatter layers only replace, and count from the front: sums into places are sums over a choice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ...exporter.nodes import Editor, argument, tensor_value
from ...exporter.rules.common import Rule
from ...exporter.rules.traced import NotRewritten, traced

__all__ = ["NO_BFLOAT16", "TENSORRT_RULES", "has_negative_index"]

aten = torch.ops.aten

# A table of this many elements is 256 MiB of float32: beyond it the parser's refusal is better.
_LIMIT = 1 << 26
_PUTS = (aten.index_put.default, aten._unsafe_index_put.default)


def _added(values: Tensor, index: Tensor, size: int) -> Tensor:
    """[..., size]: sums of the last axis of `values` by place; `index` broadcasts with it.

    By choice and not by product with ones and zeros: zero times infinity is not zero.
    """
    if values.numel() * size > _LIMIT:
        raise NotRewritten
    places = torch.arange(size, device=index.device)
    index = torch.where(index < 0, index + size, index)
    hits = index.unsqueeze(-1) == places
    return torch.where(hits, values.unsqueeze(-1), 0.0).sum(-2)


def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if not x.dim() or x.dtype != torch.float32:
        raise NotRewritten
    source = source[tuple(slice(0, size) for size in index.shape)]
    if any(index.shape[a] != x.shape[a] for a in range(x.dim()) if a != dim % x.dim()):
        raise NotRewritten  # nothing lands on a part of `x`
    added = _added(source.movedim(dim, -1), index.movedim(dim, -1), x.shape[dim])
    return x + added.movedim(-1, dim)


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    if reduce != "sum" or not include_self:
        raise NotRewritten
    return _scatter_add(x, dim, index, source)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    if not x.dim() or x.dtype != torch.float32 or index.dim() != 1:
        raise NotRewritten
    added = _added(source.movedim(dim, -1), index, x.shape[dim])
    return x + alpha * added.movedim(-1, dim)


def has_negative_index(node: Node) -> bool:
    """Whether an index may count from the end, which TensorRT's scatter layers do not document."""
    if node.target is aten.select_scatter.default:
        x, index = tensor_value(node.args[0]), argument(node, "index")
        size = None if x is None else x.shape[argument(node, "dim")]
        return isinstance(index, int) and index < 0 and isinstance(size, int)
    if node.target not in _PUTS:
        return False
    indices: Any = node.args[1]
    return any(isinstance(item, Node) and item.target is not aten.where.self for item in indices)


def _select_scatter(editor: Editor, node: Node) -> Any:
    if not has_negative_index(node):
        return None
    x, source = node.args[:2]
    dim, index = argument(node, "dim"), argument(node, "index")
    size = tensor_value(x).shape[dim]  # type: ignore[union-attr]
    return editor.call(
        node, aten.select_scatter.default, x, source, dim, index + size, value=node.meta["val"]
    )


def _index_put(editor: Editor, node: Node) -> Any:
    x, indices = tensor_value(node.args[0]), node.args[1]
    if x is None or not has_negative_index(node):
        return None
    counted = []
    for axis, item in enumerate(indices):  # type: ignore[arg-type]
        value, size = tensor_value(item), x.shape[axis]
        if value is None:
            counted.append(item)
            continue
        if value.dtype != torch.int64 or not isinstance(size, int):
            return None
        negative = editor.call(node, aten.lt.Scalar, item, 0)
        moved = editor.call(node, aten.add.Tensor, item, size)
        counted.append(editor.call(node, aten.where.self, negative, moved, item))
    target: Any = node.target
    rest = node.args[2:]
    return editor.call(
        node, target, node.args[0], counted, *rest, value=node.meta["val"], **node.kwargs
    )


def _log_softmax(x: Tensor, dim: int, dtype: torch.dtype | bool | None = None) -> Tensor:
    """The parser writes log(softmax(x)), which is -inf where softmax comes to 0."""
    if not x.dim():
        raise NotRewritten
    if isinstance(dtype, torch.dtype):
        x = x.to(dtype)
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def _in_float32(target: Any) -> Rule:
    """The parser takes these in float32 and float16, and no bfloat16."""

    def computed(x: Tensor, *rest: Any) -> Tensor:
        if x.dtype != torch.bfloat16:
            raise NotRewritten
        result: Tensor = target(x.to(torch.float32), *rest)
        return result.to(x.dtype)

    return traced(computed)


NO_BFLOAT16 = (
    *(aten.hardswish.default, aten.mish.default),
    *(aten.hardshrink.default, aten.softshrink.default),
)
"""Operators whose ONNX form the parser does not take in bfloat16."""

TENSORRT_RULES: dict[Any, Rule] = {
    aten.scatter_add.default: traced(_scatter_add),
    aten.scatter_reduce.two: traced(_scatter_reduce),
    aten.index_add.default: traced(_index_add),
    aten.select_scatter.default: _select_scatter,
    **dict.fromkeys(_PUTS, _index_put),
    aten.log_softmax.int: traced(_log_softmax),
    aten._log_softmax.default: traced(_log_softmax),
    **{target: _in_float32(target) for target in NO_BFLOAT16},
}
