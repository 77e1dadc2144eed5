"""Sums of many terms, kept in float32 or in float16.

Apple does not document how Core ML keeps the sum of a float16 product: it may be float32, rounded
once at the end, or float16, rounded on the way; a package must be right under both. So each sum
here takes `accumulate`, and values of float32 ignore it.

With float16, the terms of a block are summed in float32, as within a tile of a matrix unit, and
the sums of blocks are added one after another, each addition rounded to float16. This stands for
hardware that keeps partial sums in float16 between a few tiles: it loses what such sums lose, and
overflows where they do. It is not a copy of Apple's hardware, nor the worst case, an accumulator
that is rounded after every term: no network of long sums would come through that.

Measured: the error of whole networks in float16 against float64, divided by that of the same
network with every sum rounded once; RMS, two kinds of input, random weights (a half-precision
artifact may reach 2). Blocks of 512 terms, at most 4: ResNet-18 1.2, ResNet-50 1.6, VGG-11 (25088
terms) 2.0; shorter sums are cut alike with or without a limit: ViT-S 1.2, MobileNetV2 1.4,
ConvNeXt 1.0. Without a limit to the blocks, VGG-11 reaches 2.9; blocks of 64 without one give
ResNet-50 2.8, MobileNetV2 2.3, VGG-11 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

__all__ = ["BLOCK", "MOST_BLOCKS", "accumulated", "blocks", "mean", "product", "total"]

BLOCK = 512
"""The fewest terms that are summed in float32 before their sum is rounded to float16."""

MOST_BLOCKS = 4
"""Into how many blocks a sum is cut at most; a longer sum has longer blocks."""


def blocks(count: int, size: int = BLOCK) -> list[slice]:
    """Slices that cut `count` things into blocks of `size`, or larger ones if these are too many.

    For a convolution the things are the input channels of a group, and `size` is `BLOCK` divided
    by the taps of the kernel, at least 1.
    """
    size = max(size, -(-count // MOST_BLOCKS))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def accumulated(parts: Iterable[torch.Tensor], accumulate: torch.dtype) -> torch.Tensor:
    """The sum of `parts`, float32 tensors of one shape, each the sum of one block.

    Returns float32: not rounded where `accumulate` is float32; where it is float16, each part and
    each partial sum is rounded to float16. There must be at least one part.
    """
    sum_: torch.Tensor | None = None
    for part in parts:
        rounded = part if accumulate == torch.float32 else part.half()
        sum_ = rounded if sum_ is None else sum_ + rounded
    if sum_ is None:
        raise ValueError("a sum of no parts")
    return sum_.float()


def product(
    x: torch.Tensor,
    y: torch.Tensor,
    accumulate: torch.dtype,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`x @ y`, [..., m, k] by [..., k, n], as the sum of a result of `dtype` (that of `x`).

    Returns float32: a float16 result is summed as the module says, and the caller rounds it once
    what belongs to the same operator (a bias) has been added. `x` and `y` may differ in dtype.
    """
    wide_x, wide_y = x.float(), y.float()
    if (dtype or x.dtype) != torch.float16 or accumulate == torch.float32 or not x.shape[-1]:
        return wide_x @ wide_y
    cuts = blocks(x.shape[-1])
    return accumulated((wide_x[..., cut] @ wide_y[..., cut, :] for cut in cuts), accumulate)


def total(
    terms: torch.Tensor, dims: Iterable[int], accumulate: torch.dtype, keepdim: bool = False
) -> torch.Tensor:
    """The sum of float32 `terms` over `dims`, none of them twice; float32, not rounded at the end.

    Pass float32 for `accumulate` where the values were float32 to begin with.
    """
    axes = sorted(dim % terms.dim() for dim in dims) if terms.dim() else []
    if not axes:
        return terms
    if accumulate == torch.float32 or math.prod(terms.shape[axis] for axis in axes) <= BLOCK:
        found = terms.sum(axes, keepdim=keepdim)
        return found if accumulate == torch.float32 else accumulated([found], accumulate)
    rest = [axis for axis in range(terms.dim()) if axis not in axes]
    flat = terms.permute(*rest, *axes).flatten(len(rest))
    found = accumulated((flat[..., cut].sum(-1) for cut in blocks(flat.shape[-1])), accumulate)
    for axis in axes if keepdim else ():
        found = found.unsqueeze(axis)
    return found


def mean(
    terms: torch.Tensor, dims: Iterable[int], accumulate: torch.dtype, keepdim: bool = False
) -> torch.Tensor:
    """The mean of float32 `terms` over `dims`; float32, not rounded at the end.

    In float16 the terms are divided before they are added, so that no partial sum leaves its range.
    """
    axes = list(dims)
    count = math.prod(terms.shape[axis] for axis in axes)
    if accumulate == torch.float32:
        return terms.mean(axes, keepdim=keepdim) if axes else terms
    return total(terms / count if count else terms / math.nan, axes, accumulate, keepdim)
