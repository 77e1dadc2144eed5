"""Pooling that runtimes lack, window by window: indices of maxima, dilation, uneven adaptive bins.

Sizes must be known. Indices count as PyTorch does: places in the flattened image without padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..decompositions import inlined
from ..nodes import Editor, tensor_value
from .common import Rule

__all__ = ["WINDOW_RULES"]

aten = torch.ops.aten

# More window positions or bins than this would make a graph nobody wants to run.
_LIMIT = 256


def _max_pool(rank: int, *, indices: bool) -> Any:
    def function(
        x: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Any:
        kernel, padding, dilation = (_each(v, rank) for v in (kernel_size, padding, dilation))
        stride = _each(stride, rank) if len(stride) else kernel
        sizes = x.shape[-rank:]
        counts = [
            _count(size, k, s, p, d, ceil_mode)
            for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
        ]
        padded = _padded(x, sizes, counts, kernel, stride, padding, dilation)
        best: Tensor | None = None
        where: Tensor | None = None
        for offsets in itertools.product(*map(range, kernel)):
            starts = [o * d for o, d in zip(offsets, dilation, strict=True)]
            value = _strided(padded, starts, counts, stride)
            first = [begin - p for begin, p in zip(starts, padding, strict=True)]
            place = _positions(first, counts, stride, sizes)
            if best is None or where is None:
                best, where = value, place.expand(value.shape)
                continue
            better = (value > best) | (value != value)  # a NaN is the largest, as in PyTorch
            best = torch.where(better, value, best)
            where = torch.where(better, place, where)
        return (best, where) if indices else best

    return function


def _each(value: Sequence[int], rank: int) -> list[int]:
    return [*value] * rank if len(value) == 1 else [*value]


def _count(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    """Windows along an axis; in ceil mode none that would begin in the padding after the image."""
    room = size + 2 * pad - dilation * (kernel - 1) - 1
    count = -(-room // stride) + 1 if ceil else room // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + pad else count


def _padded(
    x: Tensor,
    sizes: Sequence[int],
    counts: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    border: float = -float("inf"),
) -> Tensor:
    borders: list[int] = []
    for axis in reversed(range(len(sizes))):
        reach = (counts[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        borders += [padding[axis], max(0, reach - sizes[axis] - padding[axis])]
    if not any(borders):
        return x
    padded: Tensor = aten.constant_pad_nd.default(x, borders, border)
    return padded


def _strided(
    x: Tensor, starts: Sequence[int], counts: Sequence[int], stride: Sequence[int]
) -> Tensor:
    for axis, (start, count, step) in enumerate(zip(starts, counts, stride, strict=True)):
        x = aten.slice.Tensor(x, axis - len(starts), start, start + (count - 1) * step + 1, step)
    return x


def _positions(
    first: Sequence[int], counts: Sequence[int], stride: Sequence[int], sizes: Sequence[int]
) -> Tensor:
    """Flat positions of one element of every window."""
    places = torch.full([1] * len(sizes), 0)
    for axis, (begin, count, step) in enumerate(zip(first, counts, stride, strict=True)):
        along = begin + torch.arange(count) * step
        shape = [1] * len(sizes)
        shape[axis] = count
        places = places * sizes[axis] + along.reshape(shape)
    return places


def _bins(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Where PyTorch's adaptive pooling begins and ends each bin."""
    for index in range(count):
        yield index * size // count, -(-(index + 1) * size // count)


def _adaptive_max(rank: int) -> Any:
    def function(x: Tensor, output_size: Sequence[int]) -> Any:
        sizes, counts = x.shape[-rank:], _each(output_size, rank)
        values, places = [], []
        per_axis = [tuple(_bins(s, c)) for s, c in zip(sizes, counts, strict=True)]
        for cell in itertools.product(*per_axis):
            part = x
            for axis, (begin, end) in enumerate(cell):
                part = aten.slice.Tensor(part, axis - rank, begin, end)
            flat = part.flatten(-rank)
            values.append(flat.amax(-1))
            inside = _positions(
                [begin for begin, _ in cell], [e - b for b, e in cell], [1] * rank, sizes
            ).reshape(-1)
            places.append(
                inside.index_select(0, flat.argmax(-1).reshape(-1)).reshape(flat.shape[:-1])
            )
        shape = [*x.shape[:-rank], *counts]
        return torch.stack(values, -1).reshape(shape), torch.stack(places, -1).reshape(shape)

    return function


def _adaptive_mean(rank: int) -> Any:
    def function(x: Tensor, output_size: Sequence[int]) -> Tensor:
        for axis, count in zip(range(-rank, 0), _each(output_size, rank), strict=True):
            parts = [
                aten.slice.Tensor(x, axis, begin, end).mean(axis, keepdim=True)
                for begin, end in _bins(x.shape[axis], count)
            ]
            x = torch.cat(parts, axis)
        return x

    return function


def _average(rank: int) -> Any:
    def function(
        x: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        kernel, padding = _each(kernel_size, rank), _each(padding, rank)
        stride = _each(stride, rank) if len(stride) else kernel
        sizes, ones = x.shape[-rank:], [1] * rank
        counts = [
            _count(size, k, s, p, 1, ceil_mode)
            for size, k, s, p in zip(sizes, kernel, stride, padding, strict=True)
        ]
        padded = _padded(x, sizes, counts, kernel, stride, padding, ones, 0.0)
        total = torch.zeros(())
        for index, starts in enumerate(itertools.product(*map(range, kernel))):
            value = _strided(padded, starts, counts, stride)
            total = total + value if index else value
        if divisor_override:
            return total / divisor_override
        for axis, (size, k, s, p) in enumerate(zip(sizes, kernel, stride, padding, strict=True)):
            begin = torch.arange(counts[axis]) * s - p
            end = (begin + k).clamp(max=size + p)
            if not count_include_pad:
                begin, end = begin.clamp(min=0), end.clamp(max=size)
            shape = [1] * rank
            shape[axis] = counts[axis]
            total = total / (end - begin).to(x.dtype).reshape(shape)
        return total

    return function


def _static(function: Any, *, size_argument: int = 1) -> Rule:
    """The rule for known sizes and a number of windows within `_LIMIT`."""

    def rule(editor: Editor, node: Node) -> Any:
        value = tensor_value(node.args[0])
        if value is None or any(not isinstance(size, int) for size in value.shape):
            return None
        many = 1
        sizes: Any = node.args[size_argument]
        for size in sizes:
            many *= size
        return inlined(editor, node, function) if 0 < many <= _LIMIT else None

    return rule


WINDOW_RULES: dict[Any, Rule] = {
    aten.avg_pool1d.default: _static(_average(1)),
    aten.avg_pool2d.default: _static(_average(2)),
    aten.avg_pool3d.default: _static(_average(3)),
    aten.max_pool1d.default: _static(_max_pool(1, indices=False)),
    aten.max_pool2d.default: _static(_max_pool(2, indices=False)),
    aten.max_pool3d.default: _static(_max_pool(3, indices=False)),
    aten.max_pool1d_with_indices.default: _static(_max_pool(1, indices=True)),
    aten.max_pool2d_with_indices.default: _static(_max_pool(2, indices=True)),
    aten.max_pool3d_with_indices.default: _static(_max_pool(3, indices=True)),
    aten.adaptive_max_pool1d.default: _static(_adaptive_max(1)),
    aten.adaptive_max_pool2d.default: _static(_adaptive_max(2)),
    aten.adaptive_max_pool3d.default: _static(_adaptive_max(3)),
    aten.adaptive_avg_pool1d.default: _static(_adaptive_mean(1)),
    aten.adaptive_avg_pool2d.default: _static(_adaptive_mean(2)),
    aten.adaptive_avg_pool3d.default: _static(_adaptive_mean(3)),
    aten._adaptive_avg_pool2d.default: _static(_adaptive_mean(2)),
    aten._adaptive_avg_pool3d.default: _static(_adaptive_mean(3)),
}
