"""Operators as others that litert_torch lowers right: functions of tensors, for torch's retrace.

Each takes what the operator takes, every argument, and returns NotImplemented where the
operator is fine as it is. All are exact for the values that torch itself promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["replacements"]

aten = torch.ops.aten

Replacement = Callable[..., Any]


def _scaled(operator: Any) -> Replacement:
    """`add` and `sub` with `alpha`, which litert_torch refuses."""

    def replace(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        if alpha == 1:
            return NotImplemented
        return operator(x, y * alpha)

    return replace


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """On the last axis by TOPK_V2; the smallest are the largest of the reversed order."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    last = x.movedim(dim, -1)
    if not largest:
        last = _reversed(last)
    values, indices = torch.ops.tfl.topk_v2(last, k)
    if not largest:
        values = _reversed(values)
    return values.movedim(-1, dim), indices.to(torch.int64).movedim(-1, dim)


def _reversed(x: Tensor) -> Tensor:
    """Values in the opposite order, undone by itself, without overflow."""
    return -x if x.is_floating_point() else -1 - x


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """TOPK_V2 of all keeps the first of equals first, so this sort is stable."""
    return _topk(x, x.shape[dim] if x.dim() else 1, dim, descending)


def _stable_sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    return _sort(x, dim, descending)


def _truncated(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """int32 towards zero: FLOOR_DIV and FLOOR_MOD are exact, litert_torch's float32 is not."""
    if rounding_mode != "trunc" or torch.result_type(x, y) != torch.int32:
        return NotImplemented
    floor = torch.div(x, y, rounding_mode="floor")
    upwards = (floor < 0) & (torch.remainder(x, y) != 0)
    return torch.where(upwards, floor + 1, floor)


def _fmod(x: Any, y: Any) -> Any:
    """FLOOR_MOD is exact; litert_torch's `x - trunc(x / y) * y` is not."""
    if torch.result_type(x, y) in (torch.int32, torch.int64):  # the least of them has no magnitude
        rest = torch.remainder(x, y)
        return torch.where((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)
    size = torch.abs(y) if isinstance(y, Tensor) else abs(y)
    rest = torch.remainder(torch.abs(x), size)
    return torch.where(x < 0, -rest, rest)


def _abs(x: Tensor) -> Any:
    """ABS has no kernel for int64."""
    return torch.where(x < 0, -x, x) if x.dtype == torch.int64 else NotImplemented


def _nearest(
    x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None
) -> Any:
    """Picked by index where the size is no multiple: the kernel rounds in another way."""
    sizes = x.shape[2:]
    scales = [None] * len(sizes) if scale_factors is None else scale_factors
    wanted = output_size or [
        int(size * scale) for size, scale in zip(sizes, scale_factors or (), strict=True)
    ]
    for axis, (size, count, scale) in enumerate(zip(sizes, wanted, scales, strict=True), 2):
        step = size / count if scale is None else 1 / scale
        places = torch.floor(torch.arange(count, dtype=torch.float32) * step)
        index = torch.clamp(places, max=size - 1).to(torch.int64)
        x = torch.index_select(x, axis, index)
    return x


def _xor(x: Tensor, y: Tensor) -> Tensor:
    return (x != 0) != (y != 0)


def _on_booleans(logical: Any) -> Replacement:
    """Bitwise operators on booleans as logic, which has kernels."""

    def replace(*given: Any) -> Any:
        if all(isinstance(item, Tensor) and item.dtype == torch.bool for item in given):
            return logical(*given)
        return NotImplemented

    return replace


def _max_pool(rank: int) -> Replacement:
    """`ceil_mode`, which litert_torch reads as floor, by padding that makes the floor right."""
    pool = (aten.max_pool1d, aten.max_pool2d, aten.max_pool3d)[rank - 1].default

    def replace(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Any:
        if not ceil_mode or not x.is_floating_point():
            return NotImplemented
        kernel, padding, dilation = (_each(v, rank) for v in (kernel, padding, dilation))
        stride = _each(stride or kernel, rank)
        pads: list[int] = []
        for at in reversed(range(rank)):
            size, reach = x.shape[at - rank], dilation[at] * (kernel[at] - 1) + 1
            result = -(-(size + 2 * padding[at] - reach) // stride[at]) + 1
            if (result - 1) * stride[at] >= size + padding[at]:
                result -= 1  # torch: a window starts inside the input or its left padding
            needed = (result - 1) * stride[at] + reach
            pads += [padding[at], max(needed - size - padding[at], 0)]
        padded = aten.constant_pad_nd.default(x, pads, float("-inf"))
        return pool(padded, kernel, stride, [0] * rank, dilation, False)

    return replace


def _each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """With a mask: rows that are masked altogether give 0 in torch, NaN in litert_torch's form."""
    if attn_mask is None or dropout_p or is_causal:
        return NotImplemented
    if enable_gqa:
        key, value = (
            item.repeat_interleave(query.shape[-3] // item.shape[-3], -3) for item in (key, value)
        )
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * factor) @ key.transpose(-1, -2)
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), float("-inf"))
    else:
        scores = scores + attn_mask
    return _safe_softmax(scores, -1) @ value


def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax that is 0 where all of a row is minus infinity."""
    if dtype is not None:
        x = x.to(dtype)
    masked = x.amax(dim, keepdim=True) == float("-inf")
    return torch.softmax(x, dim).masked_fill(masked, 0.0)


def replacements() -> dict[Any, Replacement]:
    """By operator."""
    return {
        aten.add.Tensor: _scaled(torch.add),
        aten.sub.Tensor: _scaled(torch.sub),
        aten.scaled_dot_product_attention.default: _attention,
        aten._safe_softmax.default: _safe_softmax,
        aten.div.Tensor_mode: _truncated,
        aten.div.Scalar_mode: _truncated,
        aten.fmod.Tensor: _fmod,
        aten.fmod.Scalar: _fmod,
        aten.abs.default: _abs,
        aten.logical_xor.default: _xor,
        aten.upsample_nearest2d.vec: _nearest,
        aten.bitwise_xor.Tensor: _on_booleans(torch.ne),
        aten.bitwise_and.Tensor: _on_booleans(torch.logical_and),
        aten.bitwise_or.Tensor: _on_booleans(torch.logical_or),
        aten.bitwise_not.default: _on_booleans(torch.logical_not),
        aten.max_pool1d.default: _max_pool(1),
        aten.max_pool2d.default: _max_pool(2),
        aten.max_pool3d.default: _max_pool(3),
        aten.topk.default: _topk,
        aten.sort.default: _sort,
        aten.sort.stable: _stable_sort,
    }
