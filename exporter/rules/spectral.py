"""Singular values and eigenvalues of small matrices by Jacobi rotations, and functions of matrices.

One-sided Jacobi (Hestenes; Golub and Van Loan, Matrix Computations, 8.6.3): columns are rotated in
pairs until they are orthogonal. Half as many pairs as columns are disjoint and rotated at once.
Vectors have no sign of their own, so that they are used only in what does not depend on it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .common import Rule
from .small_matrices import cols, identity, place, require_small, rows, safe, size
from .traced import NotRewritten, traced

__all__ = ["SPECTRAL_RULES"]

aten = torch.ops.aten

ROTATED = 16
"""Up to this many columns are rotated."""


def _sweeps(x: Tensor, n: int) -> int:
    """How many times each pair of `n` columns is rotated.

    At least one more than random, graded, clustered, integer and Hilbert matrices were measured to
    need until the error stays: 5 for 8 columns and 6 for 16 in float32, 7 for 8 in float64.
    """
    if n == 2:
        return 2
    return 6 + n // 2 if x.dtype == torch.float64 else 5 + n // 5


class _Svd(NamedTuple):
    """A V (..., m, n), its columns orthogonal, their norms (..., 1, n), and V (..., n, n)."""

    turned: Tensor
    norms: Tensor
    v: Tensor


def _svd(a: Tensor) -> _Svd:
    """Of a matrix with at least as many rows as columns; the order is none."""
    m, n = size(a)
    require_small(n, bound=ROTATED)
    if n == 0:
        raise NotRewritten
    largest = a.abs().amax((-2, -1), keepdim=True)
    scale = safe(largest, largest == 0)
    stacked = _rotated(torch.cat([a / scale, identity(a, n, n)], -2), m)
    turned = rows(stacked, 0, m)
    norms = (turned * turned).sum(-2, keepdim=True).sqrt()
    return _Svd(turned * scale, norms * scale, rows(stacked, m, m + n))


def _rotated(x: Tensor, m: int) -> Tensor:
    """Columns of `x` turned until those of its first `m` rows are orthogonal."""
    height, n = size(x)
    if n == 1:
        return x
    even = n + n % 2
    x = place(x, height, even, 0, 0)
    half, order = even // 2, _next_round(even)
    for _ in range(_sweeps(x, n) * (even - 1)):
        one, two = _orthogonal(cols(x, 0, half), cols(x, half, even), m)
        x = torch.cat([one, two], -1)
        if order is not None:
            x = torch.index_select(x, -1, order)
    return cols(x, 0, n)


def _next_round(n: int) -> Tensor | None:
    """Where each column comes from for the next pairs: the first stays, the others move on by one.

    The round robin of a tournament; after n - 1 rounds each has met each and is back in its place.
    """
    half = n // 2
    if half == 1:
        return None
    steps = [(0, 1), (half, half + 1), (1, half - 1), (half + 1, n), (half - 1, half)]
    return torch.cat([torch.arange(start, end) for start, end in steps if start < end])


def _orthogonal(one: Tensor, two: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Each column of `one` and its like of `two`, rotated to be orthogonal in the first m rows."""
    a, b = rows(one, 0, m), rows(two, 0, m)
    product = (a * b).sum(-2, keepdim=True)
    gap = (b * b).sum(-2, keepdim=True) - (a * a).sum(-2, keepdim=True)
    done = product == 0
    zeta = gap / safe(2 * product, done)
    root = (1 + zeta * zeta).sqrt()
    tangent = 1 / torch.where(zeta < 0, zeta - root, zeta + root)
    tangent = tangent.masked_fill(done, 0)
    cosine = 1 / (1 + tangent * tangent).sqrt()
    sine = cosine * tangent
    return cosine * one - sine * two, sine * one + cosine * two


def _tall(a: Tensor) -> Tensor:
    m, n = size(a)
    return a if m >= n else a.mT


def _linalg_svd(
    a: Tensor, _full: bool, _vectors: bool, _driver: str | None
) -> tuple[Tensor | None, ...]:
    """Singular values only."""
    if min(size(a)) == 0:
        raise NotRewritten
    norms = _svd(_tall(a)).norms.squeeze(-2)
    return None, torch.topk(norms, norms.shape[-1])[0], None


class _Eigen(NamedTuple):
    """Eigenvalues (..., 1, n) in no order, and the vectors (..., n, n) as columns."""

    values: Tensor
    vectors: Tensor


def _eigh(a: Tensor, *, upper: bool = False) -> _Eigen:
    """Of symmetric matrices, given by one triangle.

    A matrix shifted until no eigenvalue is negative has its eigenvectors as singular vectors. The
    values are those of the matrix itself (Rayleigh quotients), so that the shift costs nothing.
    """
    n = size(a)[0]
    require_small(n, bound=ROTATED)
    if n == 0:
        raise NotRewritten
    half = a.mT if upper else a
    whole = half.tril() + half.tril(-1).mT
    largest = whole.abs().amax((-2, -1), keepdim=True)
    scale = safe(largest, largest == 0)
    scaled = whole / scale
    shift = (scaled * scaled).sum((-2, -1), keepdim=True).sqrt()
    one = identity(a, n, n)
    v = rows(_rotated(torch.cat([scaled + shift * one, one], -2), n), n, 2 * n)
    values = (v * torch.matmul(scaled, v)).sum(-2, keepdim=True)
    squares = (v * v).sum(-2, keepdim=True)
    return _Eigen(values / squares * scale, v / squares.sqrt())


def _linalg_eigh(a: Tensor, triangle: str, _vectors: bool) -> tuple[Tensor | None, ...]:
    """Eigenvalues only."""
    values = _eigh(a, upper=triangle.upper() == "U").values.squeeze(-2)
    return torch.topk(values, values.shape[-1], largest=False)[0], None


def _pinv(a: Tensor, atol: Tensor | None, rtol: Tensor | None, hermitian: bool) -> Tensor:
    """As torch has it: what is at most max(atol, rtol * largest) counts as zero."""
    m, n = size(a)
    if min(m, n) == 0:
        raise NotRewritten
    if m < n and not hermitian:
        return _pinv(a.mT, atol, rtol, hermitian).mT
    if hermitian:
        eigen = _eigh(a)
        values, left, right = eigen.values, eigen.vectors, eigen.vectors
        norms = values.abs()
    else:
        svd = _svd(a)
        values = norms = svd.norms
        left, right = svd.turned / safe(norms, norms == 0), svd.v
    small = norms <= _cutoff(norms.amax(-1, keepdim=True), m, n, atol, rtol)
    inverted = (1 / safe(values, small)).masked_fill(small, 0)
    return torch.matmul(right * inverted, left.mT)


def _cutoff(largest: Tensor, m: int, n: int, atol: Tensor | None, rtol: Tensor | None) -> Tensor:
    usual = torch.finfo(largest.dtype).eps * max(m, n)
    absolute = None if atol is None else _per_matrix(atol, largest)
    if rtol is not None:
        relative = _per_matrix(rtol, largest) * largest
    elif absolute is not None:
        relative = (usual * largest).masked_fill(absolute > 0, 0)
    else:
        relative = usual * largest
    return relative if absolute is None else torch.maximum(absolute, relative)


def _per_matrix(tolerance: Tensor, like: Tensor) -> Tensor:
    tolerance = tolerance.to(like.dtype)
    return tolerance.unsqueeze(-1).unsqueeze(-1) if tolerance.dim() else tolerance


def _polar(a: Tensor) -> tuple[Tensor, Tensor]:
    """A = U H. Of singular matrices, whose U is not unique, H alone is torch's."""
    svd = _svd(a)
    unit = svd.turned / safe(svd.norms, svd.norms == 0)
    return torch.matmul(unit, svd.v.mT), torch.matmul(svd.v * svd.norms, svd.v.mT)


def _matrix_sqrth(a: Tensor) -> Tensor:
    """The root of a symmetric matrix; what rounding made negative counts as zero, as in torch."""
    eigen = _eigh(a)
    return torch.matmul(eigen.vectors * eigen.values.clamp(min=0).sqrt(), eigen.vectors.mT)


# A Taylor polynomial of degree 18 is exact in float64 up to this 1-norm (Bader, Blanes, Casas,
# "Computing the matrix exponential with an optimized Taylor polynomial approximation", 2019).
_DEGREE, _NORM = 18, 1.09
_SQUARINGS = 20  # beyond that norm (a million) nothing is left of float32's precision


def _matrix_exp(a: Tensor) -> Tensor:
    """Scaling and squaring: matrices of any known size."""
    n = size(a)[0]
    if n == 0:
        raise NotRewritten
    norm = a.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    scaled = a
    for k in range(_SQUARINGS):
        scaled = torch.where(norm > _NORM * 2.0**k, scaled * 0.5, scaled)
    one = identity(a, n, n)
    x = one + scaled / _DEGREE
    for k in reversed(range(1, _DEGREE)):
        x = one + torch.matmul(scaled, x) / k
    for k in range(_SQUARINGS):
        x = torch.where(norm > _NORM * 2.0**k, torch.matmul(x, x), x)
    return x


SPECTRAL_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten._linalg_svd.default: traced(_linalg_svd),
    aten._linalg_eigh.default: traced(_linalg_eigh),
    aten.linalg_pinv.atol_rtol_tensor: traced(_pinv),
    aten.linalg_polar.default: traced(_polar),
    aten.linalg_matrix_sqrth.default: traced(_matrix_sqrth),
    aten.linalg_matrix_exp.default: traced(_matrix_exp),
}
