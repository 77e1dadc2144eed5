"""Values of one input: drawn at random, or at the edges of what it may take."""

from __future__ import annotations

import math
from typing import Literal

import torch

__all__ = ["Fill", "booleans", "floats", "halves_within", "integers", "padding", "rows"]

Fill = Literal[
    "normal",
    "zeros",
    "large",
    "tiny",
    "constant",
    "negative",
    "halves",
    "ties",
    "ends",
    "prefix",
    "suffix",
    "true",
    "false",
    "row",
]

# Scales of the study behind the rule (docs/parity.md): they reach saturation and rounding
# to nothing without leaving what a float32 model should survive.
_LARGE = 100.0
_TINY = 1e-3

# Integer ranges wider than this are drawn in all orders of magnitude.
_WIDE = 2**16

# Halves are drawn from this far on either side of zero, or of the middle of the range.
_HALVES_REACH = 8

Range = tuple[float, float]


def floats(
    fill: Fill,
    shape: tuple[int, ...],
    span: Range | None,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Float or complex values, inside `span` where the input has a range."""
    if fill == "constant":
        values = torch.ones(shape, dtype=dtype)
    elif fill == "negative":
        values = _negative(shape, span, generator, dtype)
    elif fill == "halves" and (ends := halves_within(span)) is not None:
        drawn = torch.randint(ends[0], ends[1] + 1, shape, generator=generator)
        values = drawn.to(dtype) + 0.5
    elif fill == "ties":
        low, high = span or (-1.0, 1.0)
        levels = torch.tensor([low, (low + high) / 2, high], dtype=dtype)
        values = levels[torch.randint(0, 3, shape, generator=generator)]
    elif span is not None and fill not in ("zeros", "large", "tiny"):
        low, high = span
        values = low + (high - low) * torch.rand(shape, generator=generator, dtype=dtype)
    else:
        scale = {"zeros": 0.0, "large": _LARGE, "tiny": _TINY}.get(fill, 1.0)
        values = scale * torch.randn(shape, generator=generator, dtype=dtype)
    return values.clamp(*span) if span is not None and not dtype.is_complex else values


def _negative(
    shape: tuple[int, ...], span: Range | None, generator: torch.Generator, dtype: torch.dtype
) -> torch.Tensor:
    if span is None:
        return -torch.randn(shape, generator=generator, dtype=dtype).abs()
    low, high = span[0], max(min(span[1], 0.0), span[0])
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=dtype)


def halves_within(span: Range | None) -> tuple[int, int] | None:
    """The least and greatest whole k for which k + 0.5 is drawn; None where fewer than two fit."""
    if span is None:
        return -_HALVES_REACH, _HALVES_REACH - 1
    middle = 0 if span[0] <= 0 <= span[1] else round((span[0] + span[1]) / 2)
    low = max(math.ceil(span[0] - 0.5), middle - _HALVES_REACH)
    high = min(math.floor(span[1] - 0.5), middle + _HALVES_REACH - 1)
    return (low, high) if high > low else None


def integers(
    fill: Fill, shape: tuple[int, ...], low: int, high: int, generator: torch.Generator
) -> torch.Tensor:
    """Integers from `low` to `high`, both inclusive."""
    if fill in ("zeros", "tiny"):
        return torch.full(shape, low)
    if fill == "large":
        return torch.full(shape, high)
    if fill == "ends":
        count = torch.Size(shape).numel()
        return torch.where(torch.arange(count) % 2 == 0, low, high).reshape(shape)
    drawn = torch.randint(low, high + 1, shape, generator=generator)
    return _of_all_sizes(drawn, low, high, generator) if high - low > _WIDE else drawn


def _of_all_sizes(
    drawn: torch.Tensor, low: int, high: int, generator: torch.Generator
) -> torch.Tensor:
    """Evenly drawn integers are nearly all large: half of them become of any size, some extreme."""
    magnitude = torch.rand(drawn.shape, generator=generator, dtype=torch.float64)
    sign = torch.randint(0, 2, drawn.shape, generator=generator) * 2 - 1
    reach = float(max(abs(low), abs(high)))
    small = (sign * reach**magnitude).to(torch.int64).clamp(low, high)
    special = torch.tensor([v for v in (low, high, -1, 0, 1) if low <= v <= high])
    extreme = special[torch.randint(0, len(special), drawn.shape, generator=generator)]
    choice = torch.rand(drawn.shape, generator=generator)
    return torch.where(choice < 0.5, small, torch.where(choice < 0.6, extreme, drawn))


def booleans(fill: Fill, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """`False` where floats are zeros, `True` where they are large, random otherwise."""
    if fill in ("zeros", "large"):
        return torch.full(shape, fill == "large", dtype=torch.bool)
    return torch.rand(shape, generator=generator) < 0.5


def padding(fill: Fill, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Rows with a prefix of ones (of zeros, for a suffix); the first row holds nothing else."""
    length = shape[-1]
    lengths = torch.randint(1, max(length, 2), shape[:-1], generator=generator)
    lengths.view(-1)[:1] = length
    prefix = torch.arange(length) < lengths.unsqueeze(-1)
    return prefix if fill == "prefix" else ~prefix


def rows(fill: Fill, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """A mask that is all ones, all zeros, or has a row of each, the others being prefixes.

    Whether a one keeps or drops a position is the model's affair: with a row of each, one row is
    wholly dropped and another wholly kept either way.
    """
    if fill in ("true", "false"):
        return torch.full(shape, fill == "true", dtype=torch.bool)
    mask = padding("prefix", shape, generator).reshape(-1, shape[-1])
    mask[0], mask[-1] = False, True
    return mask.reshape(shape)
