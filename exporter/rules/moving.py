"""Borders that repeat the image, rolls and flips by index; histograms; windows of signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..nodes import Editor, argument
from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["MOVING_RULES"]

aten = torch.ops.aten

# More comparisons than this would make a graph nobody wants to run.
_BINS = 4096


def _pad(x: Tensor, pad: Sequence[int], mode: str, value: float | None) -> Tensor:
    """`pad` holds (before, after) of the last axis, then of the one before it, and so on."""
    if mode == "constant":
        bordered: Tensor = aten.constant_pad_nd.default(x, pad, value or 0)
        return bordered
    if mode not in ("circular", "reflect", "replicate"):
        raise NotRewritten
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if before or after:
            x = _bordered(x, x.dim() - 1 - number, before, after, mode)
    return x


def _bordered(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    size = x.shape[axis]
    if any(not isinstance(number, int) for number in (size, before, after)) or not size:
        raise NotRewritten
    places = torch.arange(before + size + after) - before
    if mode == "replicate":
        places = places.clamp(0, size - 1)
    elif mode == "reflect":
        places = (size - 1) - (places.abs() - (size - 1)).abs()
    else:  # what is cut off is cut before the image is repeated
        start = max(-before, 0)
        rest = size - start - max(-after, 0)
        places = torch.remainder(torch.arange(before + size + after) - max(before, 0), rest) + start
    return x.index_select(axis, places)


def _in_mode(mode: str) -> Any:
    return lambda x, pad: _pad(x, pad, mode, None)


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    if not dims:
        return _rolled(x.reshape(-1), shifts[0], 0).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, dim)
    return x


def _rolled(x: Tensor, shift: int, dim: int) -> Tensor:
    size = x.shape[dim]
    if not isinstance(size, int) or not size:
        raise NotRewritten
    cut = size - shift % size
    parts = [aten.slice.Tensor(x, dim, cut, size), aten.slice.Tensor(x, dim, 0, cut)]
    return torch.cat(parts, dim) if cut != size else x


def _flip(_editor: Editor, node: Node) -> Any:
    """Along no axis it does nothing."""
    return None if node.args[1] else node.args[0]


def _logspace(editor: Editor, node: Node) -> Any:
    value = node.meta["val"]
    start, end, steps = (argument(node, name) for name in ("start", "end", "steps"))
    base = argument(node, "base")
    numbers = all(isinstance(number, (int, float)) for number in (start, end))
    if value.dtype != torch.float32 or not numbers or base <= 0:
        return None
    powers = editor.call(node, aten.linspace.default, float(start), float(end), steps)
    return editor.call(node, aten.pow.Scalar, float(base), powers, value=value)


def _window(offset: float, swing: float) -> Rule:
    """`offset - swing cos(2 pi k / n)`: https://pytorch.org/docs/stable/signal.html"""

    def rule(editor: Editor, node: Node) -> Any:
        value = node.meta["val"]
        names = {entry.name for entry in node.target._schema.arguments}  # type: ignore[union-attr]
        first = argument(node, "alpha") if "alpha" in names else offset
        second = argument(node, "beta") if "beta" in names else swing
        count = argument(node, "window_length")
        periodic = argument(node, "periodic") if "periodic" in names else True
        if value.dtype != torch.float32 or not isinstance(count, int) or count < 2:
            return None
        places = editor.call(node, aten.arange.start, 0, count)
        places = editor.call(node, aten._to_copy.default, places, dtype=torch.float32)
        step = 2 * math.pi / (count if periodic else count - 1)
        turned = editor.call(node, aten.mul.Tensor, places, step)
        waves = editor.call(node, aten.cos.default, turned)
        waves = editor.call(node, aten.mul.Tensor, waves, -second)
        return editor.call(node, aten.add.Tensor, waves, first, value=value)

    return rule


def _counted(
    x: Tensor, edges: Tensor, weight: Tensor | None, density: bool
) -> tuple[Tensor, Tensor]:
    flat = x.reshape(-1, 1)
    if not isinstance(flat.shape[0], int) or edges.shape[0] > _BINS:
        raise NotRewritten
    low = aten.slice.Tensor(edges, 0, 0, edges.shape[0] - 1).unsqueeze(0)
    high = aten.slice.Tensor(edges, 0, 1, edges.shape[0]).unsqueeze(0)
    closed = torch.arange(edges.shape[0] - 1).unsqueeze(0) == edges.shape[0] - 2
    hits = (flat >= low) & ((flat < high) | (closed & (flat == high)))
    counts = hits.to(x.dtype)
    if weight is not None:
        counts = counts * weight.reshape(-1, 1)
    total = counts.sum(0)
    if density:
        total = total / total.sum() / (high - low).reshape(-1)
    return total, edges


def _histogram(
    x: Tensor, bins: int, range: Sequence[float] | None, weight: Tensor | None, density: bool
) -> tuple[Tensor, Tensor]:
    if range is not None:
        low, high = (torch.full([1], float(end)) for end in range)
    else:
        low, high = x.reshape(-1).amin(0, keepdim=True), x.reshape(-1).amax(0, keepdim=True)
    same = low == high  # then PyTorch takes half a unit on either side
    half = same.to(x.dtype) * 0.5
    low, high = low - half, high + half
    step = (high - low) / bins
    index = torch.arange(bins + 1)
    left = low + step * index.to(x.dtype)
    right = high - step * (bins - index).to(x.dtype)
    edges = torch.where(index < (bins + 1) // 2, left, right)  # as `linspace` computes them
    return _counted(x, edges, weight, density)


MOVING_RULES: dict[Any, Rule] = {
    aten.pad.default: traced(_pad),
    aten._pad_circular.default: traced(_in_mode("circular")),
    **{
        getattr(aten, f"{name}_pad{rank}d").default: traced(_in_mode(mode))
        for name, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for rank in (1, 2, 3)
    },
    aten.roll.default: traced(_roll),
    aten.flip.default: _flip,
    aten.logspace.default: _logspace,
    **{
        getattr(packet, overload): _window(offset, swing)
        for packet, offset, swing in (
            (aten.hann_window, 0.5, 0.5),
            (aten.hamming_window, 0.54, 0.46),
        )
        for overload in packet.overloads()
        if overload != "out" and not overload.endswith("_out")
    },
    aten.histogram.bin_ct: traced(_histogram),
    aten.histogram.bins_tensor: traced(_counted),
}
