"""Noise of a few units in the last place, cheap and the same for the same key.

Signs come from one table of random +-1, read at an offset that the key chooses:
a full-size random tensor per weight would cost more than the model itself.
"""

from __future__ import annotations

import functools
import zlib

import torch

__all__ = ["jitter"]

_TABLE = 1 << 20
_OFFSETS = 1 << 16

# x + 0.625 * eps * x lies between half and one and a half spacings from x whatever x's mantissa, so
# it rounds to the neighbouring number: exactly one ulp, in one pass.
_ONE_ULP = 0.625


def jitter(
    tensor: torch.Tensor, key: str, ulps: float, sign: int = 1, *, whole: bool = False
) -> torch.Tensor:
    """A contiguous copy of `tensor` with every element moved up or down by `ulps`.

    Zeros, infinities, NaN, whole numbers (but see `whole`) and values of other than float or
    complex dtype stay.

    Args:
        tensor: any shape and dtype.
        key: chooses the directions.
        ulps: how far, in units in the last place; 1 is exact, more is on average.
        sign: -1 reverses every direction.
        whole: move whole numbers too.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return tensor.clone()
    source = tensor.detach().contiguous()
    moved = torch.empty_like(source)
    flat, into = source.reshape(-1), moved.view(-1)
    if tensor.is_complex():
        flat, into = torch.view_as_real(flat).view(-1), torch.view_as_real(into).view(-1)
    factor = (_ONE_ULP if ulps == 1 else ulps) * torch.finfo(flat.dtype).eps * sign
    offset = zlib.crc32(key.encode()) % _OFFSETS
    signs = _signs(flat.dtype)[offset:]
    for start in range(0, flat.numel(), _TABLE):
        part = flat[start : start + _TABLE]
        target = into[start : start + _TABLE]
        torch.addcmul(part, part, signs[: part.numel()], value=factor, out=target)
        # Whole numbers are meant exactly: masks of 0 and 1, counts. One ulp on a mask that is
        # multiplied by finfo.min would be noise larger than the whole output.
        if not whole:
            torch.where(part == part.trunc(), part, target, out=target)
    if not bool(into.sum().isfinite()):
        torch.where(into.isfinite(), into, flat, out=into)
    return moved


@functools.cache
def _signs(dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator()
    generator.manual_seed(0)
    bits = torch.randint(0, 2, (_TABLE + _OFFSETS,), generator=generator, dtype=torch.int8)
    return (bits * 2 - 1).to(dtype)
