"""Pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from . import sums
from .axes import bounded
from .call import Call, Operator
from .elementwise import FLOATS, of_dtype, refuse_nan
from .windows import fitted, per_dimension, same_before, spatial_rank

__all__ = ["OPERATORS"]


def avg_pool(call: Call) -> torch.Tensor:
    """The mean of each window of x, [n, C, *D]."""
    x = of_dtype(call, "x", FLOATS)
    windows = _windows(call, x)
    terms, dims = windows.of(x.float(), 0.0), windows.dims
    accumulate = call.accumulate if x.dtype == torch.float16 else torch.float32
    if not call.flag("exclude_padding_from_average", False):
        windows.refuse_overhang(call)
        return sums.mean(terms, dims, accumulate).to(x.dtype)
    windows.refuse_empty(call)
    counts = windows.of(torch.ones(1, 1, *x.shape[2:]), 0.0).sum(dims, keepdim=True)
    if accumulate == torch.float16:  # no partial sum may leave its range
        return sums.total(terms / counts, dims, accumulate).to(x.dtype)
    return (terms.sum(dims) / counts.squeeze(dims)).to(x.dtype)


def max_pool(call: Call) -> torch.Tensor:
    """The largest value of each window of x, [n, C, *D]; padding is never the largest."""
    x = of_dtype(call, "x", FLOATS)
    refuse_nan(call, x)
    windows = _windows(call, x)
    windows.refuse_empty(call)
    return windows.of(x, -math.inf).amax(windows.dims)


def l2_pool(call: Call) -> torch.Tensor:
    """The square root of the sum of squares of each window of x, [n, C, *D] of rank 3 or 4."""
    x = of_dtype(call, "x", FLOATS)
    if x.dim() > 4:
        raise call.damaged(f"x has rank {x.dim()}, not 3 or 4")
    windows = _windows(call, x)
    squares = windows.of(x.float().square(), 0.0)
    accumulate = call.accumulate if x.dtype == torch.float16 else torch.float32
    return sums.total(squares, windows.dims, accumulate).sqrt().to(x.dtype)


OPERATORS: dict[str, Operator] = {"avg_pool": avg_pool, "l2_pool": l2_pool, "max_pool": max_pool}


@dataclass(frozen=True)
class _Windows:
    """Windows over spatial dimensions of `sizes`, padded by `before` and `after`."""

    sizes: tuple[int, ...]
    kernels: list[int]
    strides: list[int]
    before: list[int]
    after: list[int]
    counts: list[int]

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of `of`'s result that run over a window."""
        return tuple(range(2 + len(self.sizes), 2 + 2 * len(self.sizes)))

    def of(self, x: torch.Tensor, value: float) -> torch.Tensor:
        """[n, C, *counts, *kernels] of x, padded with `value`."""
        found = fitted(x, self.before, self.reaches, value)
        for axis, (kernel, stride) in enumerate(zip(self.kernels, self.strides, strict=True)):
            found = found.unfold(2 + axis, kernel, stride)
        return found

    def refuse_empty(self, call: Call) -> None:
        for axis, size in enumerate(self.sizes):
            last = (self.counts[axis] - 1) * self.strides[axis] - self.before[axis]
            if self.before[axis] >= self.kernels[axis] or last >= size:
                call.refuse("a window that lies in the padding")

    def refuse_overhang(self, call: Call) -> None:
        """Windows over the end of the padding: PyTorch does not count what is over the end."""
        for axis, size in enumerate(self.sizes):
            if self.reaches[axis] > self.before[axis] + size + self.after[axis]:
                call.refuse("ceil_mode with a window that reaches over the padding")

    @property
    def reaches(self) -> list[int]:
        """How far the last window reaches, from the first one's start."""
        columns = zip(self.counts, self.strides, self.kernels, strict=True)
        return [(count - 1) * stride + kernel for count, stride, kernel in columns]


def _windows(call: Call, x: torch.Tensor) -> _Windows:
    rank = spatial_rank(call, x)
    kernels = per_dimension(call, "kernel_sizes", rank, 1)
    strides = per_dimension(call, "strides", rank, 1, 1)
    kind = call.text("pad_type", choices=("valid", "custom", "same", "same_lower"))
    pads = per_dimension(call, "pad", 2 * rank, 0, 0)
    ceil = call.flag("ceil_mode", False)
    before, after = pads[::2], pads[1::2]
    if kind != "custom" and any(pads):
        call.refuse(f"pad={pads} with pad_type={kind}")
    if ceil and (kind.startswith("same") or before != after or rank == 3):
        call.refuse("ceil_mode with three dimensions, pad_type=same or uneven padding")
    if kind == "same_lower" and call.opset < 6:
        call.refuse("pad_type=same_lower in iOS 15")
    counts = []
    for axis, (size, kernel, stride) in enumerate(zip(x.shape[2:], kernels, strides, strict=True)):
        if not size:
            call.refuse("a window over nothing")
        if kind.startswith("same"):
            count = -(-size // stride)
            before[axis] = _same(call, size, kernel, stride, lower=kind == "same_lower")
            after[axis] = max(0, (count - 1) * stride + kernel - size - before[axis])
        else:
            count = _count(size, before[axis], after[axis], kernel, stride, ceil=ceil)
        if count < 1:
            raise call.damaged(f"the window is larger than spatial dimension {axis}")
        counts.append(count)
    found = _Windows(tuple(x.shape[2:]), kernels, strides, before, after, counts)
    bounded(call, [*x.shape[:2], *found.reaches])
    return found


def _same(call: Call, size: int, kernel: int, stride: int, *, lower: bool) -> int:
    # The documentation of avg_pool wants kernel padded in all, which gives
    # floor(size / stride) + 1 windows: not what "same" means where stride divides size.
    whole = None if size % stride == 0 else (kernel + 1) // 2 if lower else kernel // 2
    return same_before(call, size, kernel, stride, lower=lower, also=whole)


def _count(size: int, before: int, after: int, kernel: int, stride: int, *, ceil: bool) -> int:
    """How many windows there are, by the formulas in the documentation of avg_pool."""
    room = size + before + after - kernel
    if room < 0:
        return 0
    if not ceil:
        return room // stride + 1
    count = -(-room // stride) + 1
    if (count - 1) * stride >= size + before and before + after > 0:
        count -= 1
    return count
