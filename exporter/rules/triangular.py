"""LU and Cholesky factorizations of small matrices, what is solved with them, and determinants.

Unrolled, one step per column, with LAPACK's pivots (getrf: the largest absolute value of the
column, the first of equals) and its `info`. What LAPACK leaves undefined for singular matrices is
so here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .common import Rule
from .small_matrices import (
    cols,
    identity,
    matched,
    require_small,
    rows,
    safe,
    same_batch,
    size,
)
from .traced import NotRewritten, traced

__all__ = ["TRIANGULAR_RULES", "inverse", "solve_triangular"]

aten = torch.ops.aten


class _Lu(NamedTuple):
    """`packed` (..., m, n) as getrf leaves it, `others` with rows exchanged alike.

    `pivots` (..., k) counts from zero, in the matrix's dtype, as `diagonal` (..., k).
    """

    packed: Tensor
    others: Tensor
    pivots: Tensor
    diagonal: Tensor


def _lu(a: Tensor, others: Tensor | None = None) -> _Lu:
    m, n = size(a)
    require_small(min(m, n))
    if min(m, n) == 0:
        raise NotRewritten
    left = a if others is None else torch.cat([a, others], -1)
    width = left.shape[-1]
    done, pivots, diagonal = [], [], []
    for k in range(min(m, n)):
        top, left, pivot = _exchange(left, k)
        done.append(top)
        pivots.append(pivot)
        corner = cols(top, k, k + 1)
        diagonal.append(corner.squeeze(-1))
        if k + 1 == m:
            break
        factor = cols(left, k, k + 1) / safe(corner, corner == 0)
        parts = [cols(left, 0, k), factor]
        if k + 1 < n:
            parts.append(cols(left, k + 1, n) - factor * cols(top, k + 1, n))
        left = torch.cat([*parts[k == 0 :], cols(left, n, width)][: None if width > n else -1], -1)
    if m > n:
        done.append(left)
    whole = torch.cat(done, -2)
    return _Lu(
        cols(whole, 0, n), cols(whole, n, width), torch.cat(pivots, -1), torch.cat(diagonal, -1)
    )


def _exchange(left: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The row with the largest entry of column `k`, the others, and its place in the matrix."""
    count = left.shape[-2]
    column = left.select(-1, k)
    if count == 1:
        return left, left, torch.full_like(column, k)
    magnitude = column.abs()
    largest = magnitude.amax(-1, keepdim=True)
    order = torch.arange(count, dtype=left.dtype)
    first = torch.where(magnitude < largest, float(count), order).amin(-1, keepdim=True)
    chosen = (order == first).unsqueeze(-1)
    top = left.masked_fill(chosen.logical_not(), 0).sum(-2, keepdim=True)
    rest = torch.where(rows(chosen, 1, count), rows(left, 0, 1), rows(left, 1, count))
    return top, rest, first + k


def _info(wrong: Tensor) -> Tensor:
    """int32 (...): the place, counted from one, of the first that is wrong (..., n), or zero."""
    n = wrong.shape[-1]
    order = torch.arange(1, n + 1, dtype=torch.int32)
    first = torch.where(wrong, order, n + 1).amin(-1)
    return first.masked_fill(first > n, 0).to(torch.int32)


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """X with A X = B, by substitution; entries of A beyond its triangle are not read."""
    n, columns = size(a)[0], b.shape[-1]
    require_small(n)
    a, b = same_batch(a, b)
    if n == 0 or columns == 0:
        return b
    found = []
    for k in reversed(range(n)) if upper else range(n):
        at = k if upper else 0
        x = rows(b, at, at + 1)
        if not unit:
            x = x / cols(rows(a, k, k + 1), k, k + 1)
        found.append(x)
        start, end = (0, k) if upper else (k + 1, n)
        if start == end:
            break
        rest = rows(b, 0, k) if upper else rows(b, 1, n - k)
        b = rest - cols(rows(a, start, end), k, k + 1) * x
    return torch.cat(found[::-1] if upper else found, -2)


def _linalg_solve_triangular(
    a: Tensor, b: Tensor, upper: bool, left: bool, unitriangular: bool
) -> Tensor:
    if left:
        return solve_triangular(a, b, upper=upper, unit=unitriangular)
    return solve_triangular(a.mT, b.mT, upper=not upper, unit=unitriangular).mT


def _triangular_solve(
    b: Tensor, a: Tensor, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Tensor, Tensor]:
    a, b = same_batch(a, b)
    used, above = (a.mT, not upper) if transpose else (a, upper)
    return solve_triangular(used, b, upper=above, unit=unitriangular), a


# ---------------------------------------------------------------- Cholesky


def _cholesky(a: Tensor, upper: bool, _check_errors: bool) -> tuple[Tensor, Tensor]:
    n = size(a)[0]
    require_small(n)
    if n == 0:
        raise NotRewritten
    left = a.mT if upper else a
    columns, wrong = [], []
    for k in range(n):
        corner = cols(rows(left, 0, 1), 0, 1)
        wrong.append((corner > 0).logical_not().squeeze(-1))
        root = corner.sqrt()
        if k + 1 == n:
            columns.append(torch.constant_pad_nd(root, [0, 0, k, 0]))
            break
        below = cols(rows(left, 1, n - k), 0, 1) / root
        columns.append(torch.constant_pad_nd(torch.cat([root, below], -2), [0, 0, k, 0]))
        left = cols(rows(left, 1, n - k), 1, n - k) - below * below.mT
    factor = torch.cat(columns, -1)
    return factor.mT if upper else factor, _info(torch.cat(wrong, -1))


def _cholesky_solve(b: Tensor, factor: Tensor, upper: bool) -> Tensor:
    lower = factor.mT if upper else factor
    half = solve_triangular(lower, b, upper=False)
    return solve_triangular(lower.mT, half, upper=True)


def _cholesky_inverse(factor: Tensor, upper: bool) -> Tensor:
    n = size(factor)[0]
    lower = factor.mT if upper else factor
    half = solve_triangular(lower, identity(factor, n, n), upper=False)
    return torch.matmul(half.mT, half)


# ---------------------------------------------------------------- LU


def _lu_factor(a: Tensor, pivot: bool, _check_errors: bool) -> tuple[Tensor, Tensor, Tensor]:
    if not pivot:
        raise NotRewritten  # not on a CPU either
    lu = _lu(a)
    return lu.packed, (lu.pivots + 1).to(torch.int32), _info(lu.diagonal == 0)


def _linalg_lu(a: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    if not pivot:
        raise NotRewritten
    m = size(a)[0]
    lu = _lu(a, identity(a, m, m))
    return lu.others.mT, *_unpacked(lu.packed)


def _unpacked(packed: Tensor) -> tuple[Tensor, Tensor]:
    m, n = size(packed)
    k = min(m, n)
    return cols(packed, 0, k).tril(-1) + identity(packed, m, k), rows(packed, 0, k).triu()


def _lu_unpack(
    packed: Tensor, pivots: Tensor, data: bool, permutation: bool
) -> tuple[Tensor | None, ...]:
    m = size(packed)[0]
    p = _exchanged(identity(packed, m, m), pivots).mT if permutation else None
    return (p, *(_unpacked(packed) if data else (None, None)))


def _exchanged(b: Tensor, pivots: Tensor, *, back: bool = False) -> Tensor:
    """Rows of `b` exchanged as the pivots (..., k), counted from one, say; or back."""
    m, count = b.shape[-2], pivots.shape[-1]
    require_small(count)
    order = torch.arange(1, m + 1, dtype=torch.int32).unsqueeze(-1)
    for k in reversed(range(count)) if back else range(count):
        other = order == pivots.narrow(-1, k, 1).unsqueeze(-1)
        here = rows(b, k, k + 1)
        there = b.masked_fill(other.logical_not(), 0).sum(-2, keepdim=True)
        b = torch.where(other, here, b)
        parts = [rows(b, 0, k)] if k else []
        b = torch.cat([*parts, there, *([rows(b, k + 1, m)] if k + 1 < m else [])], -2)
    return b


def _lu_solve(packed: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor:
    if not left:
        return _lu_solve(packed, pivots, b.mT, True, not adjoint).mT
    packed, b = same_batch(packed, b)
    pivots = matched(pivots.unsqueeze(-1), tuple(b.shape[:-2])).squeeze(-1)
    if adjoint:
        half = solve_triangular(packed.mT, b, upper=False)
        x = solve_triangular(packed.mT, half, upper=True, unit=True)
        return _exchanged(x, pivots, back=True)
    half = solve_triangular(packed, _exchanged(b, pivots), upper=False, unit=True)
    return solve_triangular(packed, half, upper=True)


def _solved(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """X with A X = B and LAPACK's `info`."""
    a, b = same_batch(a, b)
    if b.shape[-1] == 0:
        raise NotRewritten
    lu = _lu(a, b)
    half = solve_triangular(lu.packed, lu.others, upper=False, unit=True)
    return solve_triangular(lu.packed, half, upper=True), _info(lu.diagonal == 0)


def _solve_ex(a: Tensor, b: Tensor, left: bool, _check_errors: bool) -> tuple[Tensor | None, ...]:
    """Without the factors: torch factorizes the transpose, depending on the layout in memory."""
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    info: Tensor
    if left:
        x, info = _solved(a, right)
    else:
        x, info = _solved(a.mT, right.mT)
        x = x.mT
    if a.dim() < x.dim():
        raise NotRewritten  # `info` has the axes of A alone
    return x.squeeze(-1) if vector else x, None, None, info


def inverse(a: Tensor) -> Tensor:
    """Of square matrices."""
    return _inv_ex(a, False)[0]


def _inv_ex(a: Tensor, _check_errors: bool) -> tuple[Tensor, Tensor]:
    n = size(a)[0]
    return _solved(a, identity(a, n, n))


# ---------------------------------------------------------------- determinants


def _sign(lu: _Lu) -> Tensor:
    """(...): minus one where the number of exchanged rows is odd, else one."""
    own = torch.arange(lu.pivots.shape[-1], dtype=lu.pivots.dtype)
    moved = (lu.pivots != own).to(lu.pivots.dtype).sum(-1)
    return 1 - 2 * torch.remainder(moved, 2)


def _product(x: Tensor) -> Tensor:
    """Of the last axis, pairwise: coremltools takes no `prod`, and n is small."""
    while (n := x.shape[-1]) > 1:
        half = n // 2
        pairs = x.narrow(-1, 0, half) * x.narrow(-1, half, half)
        x = torch.cat([pairs, x.narrow(-1, n - 1, 1)], -1) if n % 2 else pairs
    return x.squeeze(-1)


def _det(a: Tensor) -> tuple[Tensor | None, ...]:
    if size(a)[0] == 0:
        return a.new_ones(a.shape[:-2]), None, None
    lu = _lu(a)
    return _sign(lu) * _product(lu.diagonal), None, None


def _slogdet(a: Tensor) -> tuple[Tensor | None, ...]:
    if size(a)[0] == 0:
        return a.new_ones(a.shape[:-2]), a.new_zeros(a.shape[:-2]), None, None
    lu = _lu(a)
    sign = _sign(lu) * _product(lu.diagonal.sign())
    return sign, lu.diagonal.abs().log().sum(-1), None, None


def _matrix_power(a: Tensor, n: int) -> Tensor:
    side = size(a)[0]
    if n == 0:
        return identity(a, side, side)
    power = inverse(a) if n < 0 else a
    result, left = None, abs(n)
    while left:
        if left % 2:
            result = power if result is None else torch.matmul(result, power)
        left //= 2
        if left:
            power = torch.matmul(power, power)
    assert result is not None
    return result


TRIANGULAR_RULES: dict[torch._ops.OpOverload, Rule] = {
    aten.linalg_solve_triangular.default: traced(_linalg_solve_triangular),
    aten.triangular_solve.default: traced(_triangular_solve),
    aten.linalg_cholesky_ex.default: traced(_cholesky),
    aten.cholesky_solve.default: traced(_cholesky_solve),
    aten._cholesky_solve_helper.default: traced(_cholesky_solve),
    aten.cholesky_inverse.default: traced(_cholesky_inverse),
    aten.linalg_lu_factor_ex.default: traced(_lu_factor),
    aten.linalg_lu.default: traced(_linalg_lu),
    aten.lu_unpack.default: traced(_lu_unpack),
    aten.linalg_lu_solve.default: traced(_lu_solve),
    aten._linalg_solve_ex.default: traced(_solve_ex),
    aten.linalg_inv_ex.default: traced(_inv_ex),
    aten._linalg_det.default: traced(_det),
    aten._linalg_slogdet.default: traced(_slogdet),
    aten.linalg_matrix_power.default: traced(_matrix_power),
}
