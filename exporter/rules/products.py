"""Distances, norms and products of several tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from .common import Rule
from .small_matrices import same_batch
from .traced import NotRewritten, traced

__all__ = ["PRODUCT_RULES"]

aten = torch.ops.aten

_PAIRED = 64  # rows of which `pdist` takes all pairs


def _norm(x: Tensor, p: float, axes: int | list[int], *, keep: bool) -> Tensor:
    """The p-norm over axes that have elements."""
    if p == 0:
        return (x != 0).to(x.dtype).sum(axes, keepdim=keep)
    size = x.abs()
    if p == 1:
        return size.sum(axes, keepdim=keep)
    if p == 2:
        return (x * x).sum(axes, keepdim=keep).sqrt()
    if p == math.inf:
        return size.amax(axes, keepdim=keep)
    if p == -math.inf:
        return size.amin(axes, keepdim=keep)
    return size.pow(p).sum(axes, keepdim=keep).pow(1 / p)


def _vector_norm(
    x: Tensor, p: float, dim: Sequence[int] | None, keep: bool, dtype: torch.dtype | None
) -> Tensor:
    if x.numel() == 0 or (dtype is not None and dtype != x.dtype):
        raise NotRewritten
    if x.dim() == 0:
        return _norm(x.unsqueeze(0), p, 0, keep=False)
    return _norm(x, p, list(dim) if dim else list(range(x.dim())), keep=keep)


def _renorm(x: Tensor, p: float, dim: int, most: float) -> Tensor:
    """Slices along `dim` with a norm above `most` are scaled to it; torch adds 1e-7 to the norm."""
    axes = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    norm = _norm(x, p, axes, keep=True)
    return x * torch.where(norm > most, most / (norm + 1e-7), 1.0)


def _cdist(a: Tensor, b: Tensor, p: float, _mode: int | None) -> Tensor:
    """Differences of all pairs of rows: what `mode` asks for may lose digits, this does not."""
    a, b = same_batch(a, b)
    if a.shape[-1] == 0:
        raise NotRewritten
    return _norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1, keep=False)


def _pdist(x: Tensor, p: float) -> Tensor:
    n = x.shape[0]
    if not isinstance(n, int) or not 2 <= n <= _PAIRED or x.shape[1] == 0:
        raise NotRewritten
    apart = [x.narrow(0, i, 1) - x.narrow(0, i + 1, n - i - 1) for i in range(n - 1)]
    return _norm(torch.cat(apart, 0), p, -1, keep=False)


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    summed: Sequence[int],
    _unrolled: int,
) -> Tensor:
    for axis in expand1:
        a = a.unsqueeze(axis)
    for axis in expand2:
        b = b.unsqueeze(axis)
    for axis in expand3:
        c = c.unsqueeze(axis)
    product = a * b * c
    return product.sum(list(summed)) if summed else product


def _addbmm(base: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    product = torch.bmm(a, b).sum(0)
    if alpha != 1:
        product = product * alpha
    if beta == 0:  # what is NaN in `base` is ignored
        return product
    return (base if beta == 1 else base * beta) + product


def _block_diag(tensors: Sequence[Tensor]) -> Tensor:
    blocks = [t.reshape(1, -1) if t.dim() < 2 else t for t in tensors]
    if len({block.dtype for block in blocks}) > 1:
        raise NotRewritten
    width, left, bands = sum(block.shape[1] for block in blocks), 0, []
    for block in blocks:
        bands.append(pad(block, (left, width - left - block.shape[1])))
        left += block.shape[1]
    return torch.cat(bands, 0)


PRODUCT_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.linalg_vector_norm.default: traced(_vector_norm),
    aten.renorm.default: traced(_renorm),
    aten._cdist_forward.default: traced(_cdist),
    aten.pdist.default: traced(_pdist),  # torch's own way needs a table of index pairs
    aten._pdist_forward.default: traced(_pdist),
    aten._trilinear.default: traced(_trilinear),
    aten.addbmm.default: traced(_addbmm),
    aten.block_diag.default: traced(_block_diag),
}
