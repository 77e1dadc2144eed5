"""Operators in the form that TensorRT computes rightly.

Sums into places are products with ones and zeros, since its scatter layers only replace.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...exporter.rules.common import Rule
from ...exporter.rules.traced import NotRewritten, traced

__all__ = ["NO_BFLOAT16", "TENSORRT_RULES"]

aten = torch.ops.aten

# A table of this many elements is 256 MiB of float32: beyond it the parser's refusal is better.
_LIMIT = 1 << 26


def _hits(index: Tensor, size: int) -> Tensor:
    """[..., count, size]: where an index of the last axis names a place."""
    if index.numel() * size > _LIMIT:
        raise NotRewritten
    places = torch.arange(size, device=index.device)
    index = torch.where(index < 0, index + size, index)
    return index.unsqueeze(-1) == places


def _scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    if not x.dim() or not x.is_floating_point():
        raise NotRewritten
    source = source[tuple(slice(0, size) for size in index.shape)]
    if any(index.shape[a] != x.shape[a] for a in range(x.dim()) if a != dim % x.dim()):
        raise NotRewritten  # nothing lands on a part of `x`
    hits = _hits(index.movedim(dim, -1), x.shape[dim])
    values = source.movedim(dim, -1).unsqueeze(-2)
    added = torch.matmul(values, hits.to(x.dtype)).squeeze(-2)
    return x + added.movedim(-1, dim)


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    if reduce != "sum" or not include_self:
        raise NotRewritten
    return _scatter_add(x, dim, index, source)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    if not x.dim() or not x.is_floating_point() or index.dim() != 1:
        raise NotRewritten
    hits = _hits(index, x.shape[dim]).to(x.dtype)
    added = torch.matmul(source.movedim(dim, -1), hits)
    return x + alpha * added.movedim(-1, dim)


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
    aten.log_softmax.int: traced(_log_softmax),
    aten._log_softmax.default: traced(_log_softmax),
    **{target: _in_float32(target) for target in NO_BFLOAT16},
}
