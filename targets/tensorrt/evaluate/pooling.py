"""Maxima and averages of windows, in two and three dimensions."""

from __future__ import annotations

from functools import reduce

import torch

from .call import Call, Operator
from .widening import known, require_floats, widened
from .windows import Padding, padded, paddings

__all__ = ["OPERATORS"]

_MAXIMA = {2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}
_AVERAGES = {2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}


def _pooling(call: Call) -> torch.Tensor:
    value = call.tensor()
    require_floats(call, value)
    window, stride = call.integers("window_size_nd"), call.integers("stride_nd")
    rank = len(window)
    if rank not in _MAXIMA or value.dim() != rank + 2:
        call.refuse(f"a window of rank {rank} on an input of rank {value.dim()}")
    around = paddings(call, list(value.shape[2:]), window, stride)
    kind = call.choice("type", {name: name for name in ("MAX", "AVERAGE", "MAX_AVERAGE_BLEND")})
    _require_overlap(call, list(value.shape[2:]), window, stride, around)
    if kind == "MAX":
        call.ignore("average_count_excludes_padding", "blend_factor")  # of averages
        return _maxima(call, value, window, stride, around)
    if kind == "AVERAGE":
        call.ignore("blend_factor")  # of MAX_AVERAGE_BLEND
        return _averages(call, value, window, stride, around)
    blend = call.number("blend_factor")
    maxima = _maxima(call, value, window, stride, around)
    return (1 - blend) * maxima + blend * _averages(call, value, window, stride, around)


def _require_overlap(
    call: Call, sizes: list[int], window: list[int], stride: list[int], around: list[Padding]
) -> None:
    """Refuse windows that see nothing of the input: an average of none, a maximum of none."""
    for size, extent, step, padding in zip(sizes, window, stride, around, strict=True):
        total = size + padding.before + padding.after + padding.beyond
        last = (total - extent) // step * step
        if extent <= padding.before or last >= padding.before + size:
            call.refuse("a window that lies wholly in the padding")


def _maxima(
    call: Call, value: torch.Tensor, window: list[int], stride: list[int], around: list[Padding]
) -> torch.Tensor:
    """Padding is never the maximum: the C++ reference pads max pooling with -inf."""
    known(call, value)
    return _MAXIMA[len(window)](padded(value, around, -torch.inf), window, stride)


def _averages(
    call: Call, value: torch.Tensor, window: list[int], stride: list[int], around: list[Padding]
) -> torch.Tensor:
    """Sums of windows over what they overlap with: the input, or the input and its padding."""
    excluding = call.flag("average_count_excludes_padding")
    sums = _AVERAGES[len(window)](padded(value, around, 0.0), window, stride, divisor_override=1)
    counts = [
        _counts(size, extent, step, padding, excluding)
        for size, extent, step, padding in zip(value.shape[2:], window, stride, around, strict=True)
    ]
    return sums / reduce(lambda whole, axis: whole.unsqueeze(-1) * axis, counts)


def _counts(size: int, extent: int, step: int, padding: Padding, excluding: bool) -> torch.Tensor:
    """How many elements each window along one axis overlaps with."""
    total = padding.before + size + padding.after
    starts = torch.arange(0, total + padding.beyond - extent + 1, step)
    low, high = (padding.before, padding.before + size) if excluding else (0, total)
    return ((starts + extent).clamp(max=high) - starts.clamp(min=low)).to(torch.float32)


OPERATORS: dict[str, Operator] = {"POOLING": widened(_pooling)}
