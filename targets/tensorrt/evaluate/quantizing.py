"""Quantised values and back."""

from __future__ import annotations

import torch

from .call import Call, Operator, torch_dtype
from .widening import known, require_floats, wide

__all__ = ["OPERATORS"]

_FP8 = torch.float8_e4m3fn
_FP8_LARGEST = 448.0


def _quantize(call: Call) -> torch.Tensor:
    """round(clip(x / s)) to int8, ties to even, or the nearest fp8 of clip(x / s, -448, 448)."""
    value = wide(call.tensor())
    require_floats(call, value)
    known(call, value)
    target = torch_dtype(call.value("to_type"), call)
    scaled = value / _scales(call, value)
    if target not in (torch.int8, _FP8):
        call.refuse(f"it quantises to {target}")
    if target == torch.int8:
        return torch.round(scaled).clamp(-128, 127).to(target)
    return scaled.clamp(-_FP8_LARGEST, _FP8_LARGEST).to(target)


def _dequantize(call: Call) -> torch.Tensor:
    """x * s, rounded once to the type that is asked for."""
    value = call.tensor()
    if value.dtype not in (torch.int8, _FP8):
        call.refuse(f"it dequantises {value.dtype}")
    floats = value.to(torch.float32)
    target = torch_dtype(call.value("to_type"), call)
    if target not in (torch.float32, torch.float16, torch.bfloat16):
        call.refuse(f"it dequantises to {target}")
    return (floats * _scales(call, floats)).to(target)


def _scales(call: Call, value: torch.Tensor) -> torch.Tensor:
    """The scale of each element: of the whole, along an axis, or of blocks.

    Zero points must be zero, says the layer; others are refused.
    """
    scale, zero = wide(call.tensor(1)), call.optional(2)
    require_floats(call, scale)
    if zero is not None and bool((wide(zero).to(torch.float32) != 0).any()):
        call.refuse("a zero point other than 0")
    block = call.value("block_shape")
    if block:
        call.ignore("axis")  # a block has a size along every axis
        return _blocks(call, scale, list(block), list(value.shape))
    if scale.numel() == 1:
        call.ignore("axis")  # one scale for all
        return scale.reshape(())
    axis = call.integer("axis")
    if scale.dim() != 1 or not 0 <= axis < value.dim():
        call.refuse(f"scales of shape {list(scale.shape)} along axis {axis}")
    if scale.shape[0] != value.shape[axis]:
        raise call.contradiction(f"{scale.shape[0]} scales for {value.shape[axis]} slices")
    return scale.reshape([-1 if index == axis else 1 for index in range(value.dim())])


def _blocks(call: Call, scale: torch.Tensor, block: list[int], shape: list[int]) -> torch.Tensor:
    """A block size of -1 is the whole axis."""
    sizes = [size if extent == -1 else extent for extent, size in zip(block, shape, strict=True)]
    for axis, (extent, size) in enumerate(zip(sizes, shape, strict=True)):
        if extent < 1 or size % extent or scale.shape[axis] != size // extent:
            call.refuse(f"blocks of {block} over {shape}")
        scale = scale.repeat_interleave(extent, axis)
    return scale


OPERATORS: dict[str, Operator] = {"QUANTIZE": _quantize, "DEQUANTIZE": _dequantize}
