"""Compressed weights (constexpr_*). quantize and dequantize are in quantizing.py.

Up to iOS 17 these operators take packed bits and a shape, from iOS 18 tensors of narrow dtypes.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from .axes import affordable, axis_within
from .call import Call, Operator
from .quantizing import OPERATORS as _QUANTIZING
from .quantizing import shifted_and_scaled

__all__ = ["OPERATORS"]


def _cast(call: Call) -> torch.Tensor:
    call.text("output_dtype", choices=("fp32",))
    source = call.tensor("source_val")
    if source.dtype != torch.float16:
        raise call.damaged(f"source_val is {source.dtype}, not float16")
    return source.float()


def _lut_to_dense(call: Call) -> torch.Tensor:
    if call.opset >= 8:
        return _looked_up(call, call.tensor("indices"), call.tensor("lut"))
    packed, lut = call.tensor("indices"), call.tensor("lut")
    shape = call.integers("shape")
    affordable(call, shape)
    if lut.dim() != 1 or len(lut) not in (2, 4, 16, 64, 256):
        raise call.damaged(f"a lookup table of {list(lut.shape)}")
    width = len(lut).bit_length() - 1
    return lut[_unpacked(call, packed, width, math.prod(shape)).long()].reshape(shape)


def _unpacked(call: Call, packed: torch.Tensor, width: int, count: int) -> torch.Tensor:
    """`count` values of `width` bits each, the least significant bit first."""
    if packed.dtype != torch.uint8 or packed.shape != (-(-count * width // 8),):
        raise call.damaged(f"{list(packed.shape)} bytes for {count} values of {width} bits")
    bits = np.unpackbits(packed.numpy(), bitorder="little")[: count * width]
    weights = np.left_shift(1, np.arange(width)).astype(np.uint8)
    return torch.from_numpy(bits.reshape(count, width) @ weights)


def _looked_up(call: Call, indices: torch.Tensor, lut: torch.Tensor) -> torch.Tensor:
    """The dense tensor that `indices` into grouped tables of vectors stand for (iOS 18)."""
    if lut.dim() != indices.dim() + 2:
        raise call.damaged(f"a lookup table of {list(lut.shape)} for {list(indices.shape)}")
    groups, (entries, vector) = lut.shape[:-2], lut.shape[-2:]
    axis = _vector_axis(call, indices.dim(), vector)
    table = torch.zeros(indices.shape, dtype=torch.int64)
    for place, (size, count) in enumerate(zip(indices.shape, groups, strict=True)):
        if count < 1 or size % count:
            raise call.damaged(f"{count} lookup tables along an axis of {size}")
        which = torch.arange(size) // (size // count)
        table = table * count + which.reshape([-1] + [1] * (indices.dim() - place - 1))
    wide = indices.long()
    if wide.numel() and int(wide.max()) >= entries:
        raise call.damaged(f"index {int(wide.max())} into a lookup table of {entries}")
    found = lut.reshape(-1, vector)[table * entries + wide]
    return found.movedim(-1, axis + 1).flatten(axis, axis + 1)


def _vector_axis(call: Call, rank: int, vector: int) -> int:
    if not call.has("vector_axis"):
        if vector != 1:
            raise call.damaged(f"vectors of {vector} without a vector_axis")
        return 0
    return axis_within(call, call.integer("vector_axis"), rank)


def _sparse_to_dense(call: Call) -> torch.Tensor:
    data, mask = call.tensor("nonzero_data"), call.tensor("mask")
    if call.opset < 8:
        shape = call.integers("shape")
        affordable(call, shape)
        mask = _unpacked(call, mask, 1, math.prod(shape)).reshape(shape)
    dense = torch.zeros(mask.shape, dtype=data.dtype)
    dense[_set_bits(call, mask, data)] = data
    return dense


def _set_bits(call: Call, mask: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """`mask` as bools, of which as many are set as `data` has elements."""
    found = mask.bool()
    if data.shape != (int(found.sum()),):
        raise call.damaged(f"{list(data.shape)} values for {int(found.sum())} bits")
    return found


def _lut_to_sparse(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    mask, data, lut = (call.tensor(n) for n in ("indices_mask", "indices_nonzero_data", "lut"))
    indices = torch.zeros(mask.shape, dtype=data.dtype)
    indices[_set_bits(call, mask, data)] = data
    dense = _looked_up(call, indices, lut)
    axis, vector = _vector_axis(call, mask.dim(), lut.shape[-1]), lut.shape[-1]
    expanded = mask.repeat_interleave(vector, axis)
    return expanded, dense[expanded.bool()]


def _blockwise_shift_scale(call: Call) -> torch.Tensor:
    data = call.tensor("data")
    scale, offset = _blocks(call, data.shape)
    return shifted_and_scaled(data, offset, scale)


def _sparse_blockwise_shift_scale(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    mask, data = call.tensor("data_mask"), call.tensor("nonzero_data")
    places = _set_bits(call, mask, data)
    scale, offset = _blocks(call, mask.shape)
    chosen = None if offset is None else offset[places]
    return mask, shifted_and_scaled(data, chosen, scale[places])


def _blocks(call: Call, shape: torch.Size) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`scale` and `offset`, each block's value repeated over the block, to `shape`."""
    scale, offset = call.tensor("scale"), call.optional_tensor("offset")
    if offset is not None and offset.shape != scale.shape:
        raise call.damaged(f"scale of {list(scale.shape)}, offset of {list(offset.shape)}")
    if scale.dim() != len(shape) or any(
        count < 1 or size % count for size, count in zip(shape, scale.shape, strict=True)
    ):
        raise call.damaged(f"scale of {list(scale.shape)} for {list(shape)}")
    for axis, size in enumerate(shape):
        times = size // scale.shape[axis]
        scale = scale.repeat_interleave(times, axis)
        offset = None if offset is None else offset.repeat_interleave(times, axis)
    return scale, offset


OPERATORS: dict[str, Operator] = {
    "constexpr_cast": _cast,
    "constexpr_lut_to_dense": _lut_to_dense,
    "constexpr_sparse_to_dense": _sparse_to_dense,
    "constexpr_lut_to_sparse": _lut_to_sparse,
    "constexpr_blockwise_shift_scale": _blockwise_shift_scale,
    "constexpr_sparse_blockwise_shift_scale": _sparse_blockwise_shift_scale,
    **_QUANTIZING,
}
