"""QR by Householder reflections, with LAPACK's signs (geqrf, larfg), so that values agree."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .common import Rule
from .small_matrices import cols, identity, place, require_small, rows, safe, size
from .traced import NotRewritten, traced

__all__ = ["ORTHOGONAL_RULES"]

aten = torch.ops.aten


class _Reflection(NamedTuple):
    """H = I - tau v v^T with `v` (..., m, 1) and `tau` (..., 1, 1)."""

    v: Tensor
    tau: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """H X."""
        return x - self.tau * self.v * (self.v * x).sum(-2, keepdim=True)


def _factorized(a: Tensor) -> tuple[list[_Reflection], list[Tensor]]:
    """The reflections in order, v one at its own place and zero before, and the rows of R."""
    m, n = size(a)
    k = min(m, n)
    require_small(k)
    reflections, upper, left = [], [], a
    for i in range(k):
        tail, tau, beta = _reflector(cols(left, 0, 1))
        v = torch.cat([torch.ones_like(beta), tail], -2) if i + 1 < m else torch.ones_like(beta)
        reflections.append(_Reflection(place(v, m, 1, i, 0), tau))
        row, width = beta, n - i
        if width > 1:
            left = _Reflection(v, tau).apply(cols(left, 1, width))
            row = torch.cat([beta, rows(left, 0, 1)], -1)
            left = rows(left, 1, m - i) if i + 1 < m else left
        upper.append(place(row, 1, n, 0, i))
    return reflections, upper


def _reflector(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's larfg on columns (..., h, 1): v below its leading one, tau, and beta."""
    h = x.shape[-2]
    alpha, tail = rows(x, 0, 1), rows(x, 1, h) if h > 1 else x
    if h == 1:
        return tail, torch.zeros_like(alpha), alpha
    largest = x.abs().amax(-2, keepdim=True)
    scale = safe(largest, largest == 0)
    scaled = tail / scale
    squares = (scaled * scaled).sum(-2, keepdim=True)
    first = alpha / scale
    norm = (first * first + squares).sqrt() * scale
    straight = squares == 0
    beta = torch.where(straight, alpha, torch.where(alpha < 0, norm, -norm))
    tau = ((beta - alpha) / safe(beta, straight)).masked_fill(straight, 0)
    return tail / safe(alpha - beta, straight), tau, beta


def _geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    m, n = size(a)
    if min(m, n) == 0:
        raise NotRewritten
    reflections, upper = _factorized(a)
    vs = torch.cat([r.v for r in reflections], -1).tril(-1)
    packed = place(vs, m, n, 0, 0) + place(torch.cat(upper, -2), m, n, 0, 0)
    return packed, torch.cat([r.tau.squeeze(-1) for r in reflections], -1)


def _product(reflections: list[_Reflection], x: Tensor) -> Tensor:
    """H_1 H_2 ... H_k X."""
    for reflection in reversed(reflections):
        x = reflection.apply(x)
    return x


def _qr(a: Tensor, mode: str) -> tuple[Tensor | None, Tensor]:
    m, n = size(a)
    if min(m, n) == 0:
        raise NotRewritten
    reflections, upper = _factorized(a)
    height = m if mode == "complete" else min(m, n)
    r = place(torch.cat(upper, -2), height, n, 0, 0)
    if mode == "r":
        return None, r
    return _product(reflections, identity(a, m, height)), r


def _stored(packed: Tensor, tau: Tensor) -> list[_Reflection]:
    """The reflections that geqrf left below the diagonal."""
    m, count = packed.shape[-2], tau.shape[-1]
    require_small(m, count)
    columns = cols(packed, 0, count).tril(-1) + identity(packed, m, count)
    return [
        _Reflection(cols(columns, i, i + 1), tau.narrow(-1, i, 1).unsqueeze(-1))
        for i in range(count)
    ]


def _householder_product(packed: Tensor, tau: Tensor) -> Tensor:
    m, n = size(packed)
    return _product(_stored(packed, tau), identity(packed, m, n))


def _ormqr(packed: Tensor, tau: Tensor, other: Tensor, left: bool, transpose: bool) -> Tensor:
    reflections = _stored(packed, tau)
    if not left:  # C Q is the transpose of Q^T C^T
        return _product(reflections if transpose else reflections[::-1], other.mT).mT
    return _product(reflections[::-1] if transpose else reflections, other)


ORTHOGONAL_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.geqrf.default: traced(_geqrf),
    aten.linalg_qr.default: traced(_qr),
    aten.linalg_householder_product.default: traced(_householder_product),
    aten.ormqr.default: traced(_ormqr),
}
