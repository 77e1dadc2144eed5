"""What the rules for matrices share: bounds, slices and masks of small matrices.

A matrix is the last two axes of a tensor; its sizes are known, those of the axes before may not be.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .traced import NotRewritten

__all__ = [
    *("UNROLLED", "cols", "identity", "matched", "place", "require_small", "rows", "safe"),
    *("same_batch", "size"),
]

UNROLLED = 32
"""Factorizations are unrolled, one step per row or column: up to this many."""


def size(x: Tensor) -> tuple[int, int]:
    """Rows and columns; raises `NotRewritten` where they are not known."""
    m, n = x.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise NotRewritten
    return m, n


def require_small(*sizes: int, bound: int = UNROLLED) -> None:
    """Raises `NotRewritten` beyond the bound."""
    if any(not isinstance(n, int) or n > bound for n in sizes):
        raise NotRewritten


def rows(x: Tensor, start: int, end: int) -> Tensor:
    """Rows `start` to `end` (excluded)."""
    return x if (start, end) == (0, x.shape[-2]) else x.narrow(-2, start, end - start)


def cols(x: Tensor, start: int, end: int) -> Tensor:
    """Columns `start` to `end` (excluded)."""
    return x if (start, end) == (0, x.shape[-1]) else x.narrow(-1, start, end - start)


def place(x: Tensor, m: int, n: int, top: int, left: int) -> Tensor:
    """Zeros (..., m, n) with `x` at row `top` and column `left`."""
    h, w = x.shape[-2:]
    room = (left, n - left - w, top, m - top - h)
    return pad(x, room) if any(room) else x


def identity(like: Tensor, m: int, n: int) -> Tensor:
    """(..., m, n) of the batch axes and the dtype of `like`, one on the diagonal, else zero."""
    across = torch.arange(n, dtype=like.dtype)
    down = torch.arange(m, dtype=like.dtype).unsqueeze(-1)
    one = (down == across).to(like.dtype)
    return one.expand(*like.shape[:-2], m, n) if like.dim() > 2 else one


def safe(x: Tensor, mask: Tensor) -> Tensor:
    """A divisor: one where `mask` says that the quotient is not used."""
    return x.masked_fill(mask, 1)


def matched(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` with its batch axes broadcast to `shape`."""
    return x if tuple(x.shape[:-2]) == shape else x.expand(*shape, *x.shape[-2:])


def same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the batch axes that they broadcast to."""
    if tuple(a.shape[:-2]) == tuple(b.shape[:-2]):
        return a, b
    shape = tuple(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    return matched(a, shape), matched(b, shape)
