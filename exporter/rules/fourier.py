"""Discrete Fourier transforms as products with tables of cosines and sines.

Complex values go in and out as `torch.complex` makes them and `torch.view_as_real` reads them,
which `complex_pairs` turns into real ones. The transformed sizes must be known. Definitions and
normalisation: https://pytorch.org/docs/stable/fft.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..legalize import rewrite
from .common import Rule
from .traced import NotRewritten, traced

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["FOURIER_RULES", "fourier_to_products"]

aten = torch.ops.aten

# A longer transform would make a table that nobody wants in a package: 64 MiB at this size.
_LIMIT = 4096

# Real and imaginary part; None stands for zeros.
_Pair = tuple[Tensor, Tensor | None]


def fourier_to_products(program: ExportedProgram) -> None:
    """Rewrite in place the Fourier transforms of a program that are known here."""
    nodes = [node for node in program.graph_module.graph.nodes if node.target in FOURIER_RULES]
    if nodes:
        rewrite(program, nodes, lambda _node: True, FOURIER_RULES)


# ---------------------------------------------------------------- one axis


def _tables(rows: int, columns: int, n: int) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi j k / n as two [rows, columns] of float32.

    j k is reduced in whole numbers, first to one turn and then to an eighth of one around the
    nearest quarter, so that the angle's rounding error is that of a number below 1.
    """
    product = torch.arange(rows)[:, None] * torch.arange(columns)[None, :]
    eighths = torch.remainder(product, n) * 8
    turns = [(eighths >= (2 * i + 1) * n).to(torch.int64) for i in range(4)]
    quarter = turns[0] + turns[1] + turns[2] + turns[3]
    rest = eighths - quarter * (2 * n)
    angle = rest.to(torch.float32) * (math.pi / (4 * n))
    cosine, sine = torch.cos(angle), torch.sin(angle)
    odd = (quarter == 1) | (quarter == 3)
    first, second = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    back, down = (quarter == 1) | (quarter == 2), (quarter == 2) | (quarter == 3)
    return torch.where(back, -first, first), torch.where(down, -second, second)


def _known(size: Any) -> int:
    if not isinstance(size, int) or not 0 < size <= _LIMIT:
        raise NotRewritten
    return size


def _resized(x: Tensor, n: int) -> Tensor:
    """The last axis cut or filled with zeros at its end."""
    size = _known(x.shape[-1])
    if size > n:
        x = aten.slice.Tensor(x, -1, 0, n)
    elif size < n:
        x = aten.constant_pad_nd.default(x, [0, n - size])
    return x


def _scale(n: int, norm: str | None, *, forward: bool) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(n)
    if norm not in (None, "backward", "forward"):
        raise NotRewritten
    return 1 / n if forward is (norm == "forward") else 1.0


def _scaled(pair: _Pair, factor: float) -> _Pair:
    if factor == 1:
        return pair
    return pair[0] * factor, None if pair[1] is None else pair[1] * factor


def _transform(
    pair: _Pair, n: int, norm: str | None, *, forward: bool, columns: int | None = None
) -> _Pair:
    """The transform of the last axis, of which the first `columns` values are wanted."""
    real, imaginary = (None if part is None else _resized(part, n) for part in pair)
    assert real is not None, "a pair has a real part"
    cosine, sine = _tables(n, n if columns is None else columns, n)
    sine = sine if forward else -sine
    first, second = real @ cosine, -(real @ sine)
    if imaginary is not None:
        first, second = first + imaginary @ sine, second + imaginary @ cosine
    return _scaled((first, second), _scale(n, norm, forward=forward))


def _real_transform(pair: _Pair, n: int, norm: str | None, *, forward: bool) -> Tensor:
    """Of the first half of what is its own conjugate backwards; the result is real."""
    half = n // 2 + 1
    real, imaginary = (None if part is None else _resized(part, half) for part in pair)
    assert real is not None, "a pair has a real part"
    cosine, sine = _tables(half, n, n)
    place = torch.arange(half)[:, None]
    once = (place == 0) | (place * 2 == n)
    weight = 2 - once.to(torch.float32)
    result = real @ (cosine * weight)
    if imaginary is not None:
        turned = imaginary @ (sine * weight)
        result = result + turned if forward else result - turned
    return _scaled((result, None), _scale(n, norm, forward=forward))[0]


# ---------------------------------------------------------------- operators


def _pair(x: Tensor) -> _Pair:
    if x.is_complex():
        parts = torch.view_as_real(x.resolve_conj())
        pair: _Pair = (parts.select(-1, 0), parts.select(-1, 1))
    else:
        pair = (x if x.is_floating_point() else x.to(torch.float32)), None
    if pair[0].dtype != torch.float32:
        raise NotRewritten
    return pair


def _complex(pair: _Pair) -> Tensor:
    real, imaginary = pair
    return torch.complex(real, torch.zeros_like(real) if imaginary is None else imaginary)


def _moved(pair: _Pair, source: int, target: int) -> _Pair:
    real, imaginary = pair
    if source == target:
        return pair
    moved = None if imaginary is None else imaginary.movedim(source, target)
    return real.movedim(source, target), moved


def _along(pair: _Pair, dim: int, n: int, norm: str | None, **options: Any) -> _Pair:
    dim %= pair[0].dim()
    done = _transform(_moved(pair, dim, -1), n, norm, **options)
    return _moved(done, -1, dim)


def _real_along(pair: _Pair, dim: int, n: int, norm: str | None, *, forward: bool) -> Tensor:
    dim %= pair[0].dim()
    result = _real_transform(_moved(pair, dim, -1), n, norm, forward=forward)
    return result.movedim(-1, dim)


def _axes(x: Tensor, s: Sequence[int] | None, dim: Sequence[int] | None) -> list[tuple[int, int]]:
    """Axes and the sizes asked for, -1 where the axis keeps its own."""
    if dim is None:
        dim = range(-len(s), 0) if s is not None else range(-x.dim(), 0)
    dims = [int(axis) % x.dim() for axis in dim]
    sizes = [-1] * len(dims) if s is None else list(s)
    if not dims or len(sizes) != len(dims):
        raise NotRewritten
    return list(zip(dims, sizes, strict=True))


def _size(x: Tensor, axis: int, asked: int | None, *, half: bool = False) -> int:
    if asked is not None and asked != -1:
        return _known(asked)
    size = _known(x.shape[axis])
    return _known(2 * (size - 1)) if half else size


def _fft(forward: bool) -> Any:
    def function(x: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        return _complex(_along(_pair(x), dim, _size(x, dim, n), norm, forward=forward))

    return function


def _fftn(forward: bool) -> Any:
    def function(x: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
        pair = _pair(x)
        for axis, asked in _axes(x, s, dim):
            pair = _along(pair, axis, _size(x, axis, asked), norm, forward=forward)
        return _complex(pair)

    return function


def _rfft(forward: bool) -> Any:
    """`rfft`, or `ihfft`: its conjugate, scaled as an inverse, is the first half of `ifft`."""
    whole = _rfftn(forward)

    def function(x: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        result: Tensor = whole(x, None if n is None else [n], [dim], norm)
        return result

    return function


def _rfftn(forward: bool) -> Any:
    def function(x: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
        pair = _pair(x)
        *others, (last, asked) = _axes(x, s, dim)
        n = _size(x, last, asked)
        pair = _along(pair, last, n, norm, forward=forward, columns=n // 2 + 1)
        for axis, size in others:
            pair = _along(pair, axis, _size(x, axis, size), norm, forward=forward)
        return _complex(pair)

    return function


def _irfft(forward: bool) -> Any:
    """`irfft`, or `hfft`, which is scaled and turns as a forward transform."""
    whole = _irfftn(forward)

    def function(x: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        result: Tensor = whole(x, None if n is None else [n], [dim], norm)
        return result

    return function


def _irfftn(forward: bool) -> Any:
    def function(x: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
        pair = _pair(x)
        *others, (last, asked) = _axes(x, s, dim)
        for axis, size in others:
            pair = _along(pair, axis, _size(x, axis, size), norm, forward=forward)
        n = _size(x, last, asked, half=True)
        return _real_along(pair, last, n, norm, forward=forward)

    return function


# ---------------------------------------------------------------- ATen's own primitives


def _factor(count: int, normalization: int) -> float:
    """`fft_norm_mode` of ATen/native/SpectralOpsUtils.h: none, by root n, by n."""
    if normalization not in (0, 1, 2):
        raise NotRewritten
    return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]


def _c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    pair, count = _pair(x), 1
    raw = "backward" if forward else "forward"  # the modes that do not scale
    for axis in dim:
        n = _size(x, axis, None)
        pair, count = _along(pair, axis, n, raw, forward=forward), count * n
    return _complex(_scaled(pair, _factor(count, normalization)))


def _r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    pair, count = _pair(x), 1
    *others, last = dim
    for axis in (last, *others):
        n = _size(x, axis, None)
        columns = n // 2 + 1 if onesided and axis == last else n
        pair = _along(pair, axis, n, None, forward=True, columns=columns)
        count *= n
    return _complex(_scaled(pair, _factor(count, normalization)))


def _c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    pair, count = _pair(x), _known(last_dim_size)
    *others, last = dim
    for axis in others:
        n = _size(x, axis, None)
        pair, count = _along(pair, axis, n, "forward", forward=False), count * n
    result = _real_along(pair, last, last_dim_size, "forward", forward=False)
    return _scaled((result, None), _factor(count, normalization))[0]


# ---------------------------------------------------------------- short-time transforms


def _window(window: Tensor | None, win_length: int | None, n_fft: int) -> Tensor:
    """The window, or ones, in the middle of `n_fft` values."""
    length = n_fft if win_length is None else win_length
    if window is None:
        window = torch.ones(length)
    left = (n_fft - length) // 2
    padded: Tensor = aten.constant_pad_nd.default(window, [left, n_fft - length - left])
    return padded


def _stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> Tensor:
    if x.is_complex() or align_to_window or (window is not None and window.is_complex()):
        raise NotRewritten
    if not isinstance(x.shape[-1], int):
        raise NotRewritten
    frames = x.unfold(-1, _known(n_fft), hop_length or n_fft // 4)
    columns = n_fft if onesided is False else n_fft // 2 + 1
    pair = _transform(
        _pair(frames * _window(window, win_length, n_fft)),
        n_fft,
        "ortho" if normalized else None,
        forward=True,
        columns=columns,
    )
    real, imaginary = _moved(pair, -1, -2)
    if return_complex:
        return _complex((real, imaginary))
    assert imaginary is not None, "a transform has an imaginary part"
    return torch.stack([real, imaginary], -1)


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """[..., frames, n] laid over one another, each `hop` after the one before."""
    count, n = frames.shape[-2:]
    steps = -(-n // hop)
    frames = aten.constant_pad_nd.default(frames, [0, steps * hop - n])
    total = None
    for step in range(steps):
        piece = aten.slice.Tensor(frames, -1, step * hop, (step + 1) * hop)
        piece = piece.reshape([*frames.shape[:-2], count * hop])
        piece = aten.constant_pad_nd.default(piece, [step * hop, (steps - 1 - step) * hop])
        total = piece if total is None else total + piece
    assert total is not None, "a frame has values"
    signal: Tensor = aten.slice.Tensor(total, -1, 0, n + hop * (count - 1))
    return signal


def _istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int | None,
    return_complex: bool,
) -> Tensor:
    if return_complex or (window is not None and window.is_complex()):
        raise NotRewritten
    hop, size = hop_length or n_fft // 4, _known(n_fft)
    if any(not isinstance(axis, int) for axis in x.shape):
        raise NotRewritten
    norm = "ortho" if normalized else None
    pair = _moved(_pair(x), -2, -1)
    # Of a whole spectrum (`onesided`) PyTorch takes the first half as well.
    frames = _real_transform(pair, size, norm, forward=False)
    shape = _window(window, win_length, n_fft)
    signal = _overlapped(frames * shape, hop)
    weight = _overlapped((shape * shape).expand(frames.shape[-2], n_fft), hop)
    start = n_fft // 2 if center else 0
    whole = signal.shape[-1]
    end = whole - n_fft // 2 if center else whole
    wanted = end - start if length is None else length
    end = min(start + wanted, whole)
    result: Tensor = aten.slice.Tensor(signal, -1, start, end) / aten.slice.Tensor(
        weight, -1, start, end
    )
    return _resized(result, wanted) if wanted > end - start else result


FOURIER_RULES: dict[Any, Rule] = {
    target: traced(function)
    for target, function in {
        aten.fft_fft.default: _fft(True),
        aten.fft_ifft.default: _fft(False),
        aten.fft_rfft.default: _rfft(True),
        aten.fft_irfft.default: _irfft(False),
        aten.fft_hfft.default: _irfft(True),
        aten.fft_ihfft.default: _rfft(False),
        **dict.fromkeys((aten.fft_fft2.default, aten.fft_fftn.default), _fftn(True)),
        **dict.fromkeys((aten.fft_ifft2.default, aten.fft_ifftn.default), _fftn(False)),
        **dict.fromkeys((aten.fft_rfft2.default, aten.fft_rfftn.default), _rfftn(True)),
        **dict.fromkeys((aten.fft_irfft2.default, aten.fft_irfftn.default), _irfftn(False)),
        **dict.fromkeys((aten.fft_hfft2.default, aten.fft_hfftn.default), _irfftn(True)),
        **dict.fromkeys((aten.fft_ihfft2.default, aten.fft_ihfftn.default), _rfftn(False)),
        aten._fft_c2c.default: _c2c,
        aten._fft_r2c.default: _r2c,
        aten._fft_c2r.default: _c2r,
        aten.stft.default: _stft,
        aten.istft.default: _istft,
    }.items()
}
