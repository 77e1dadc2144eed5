"""Affine quantization: quantize, dequantize, constexpr_affine_dequantize."""

from __future__ import annotations

import torch

from .axes import one_axis
from .call import Call, Operator
from .types import STORAGE

__all__ = ["OPERATORS", "shifted_and_scaled"]


def shifted_and_scaled(
    data: torch.Tensor, offset: torch.Tensor | None, scale: torch.Tensor
) -> torch.Tensor:
    """`scale * (data - offset)` in the dtype of `scale`, rounded once.

    Differences of integers of at most 16 bits are exact in float32, where float16 is computed.
    """
    wide = data.float() if offset is None else data.float() - offset.float()
    return (wide * scale.float()).to(scale.dtype)


def _along(call: Call, name: str, x: torch.Tensor) -> torch.Tensor | None:
    """Parameter `name`, a scalar or a vector along `axis`, shaped so that it broadcasts to `x`."""
    found = call.optional_tensor(name)
    if found is None or found.dim() == 0:
        return found
    if found.dim() > 1 or not call.has("axis"):
        raise call.damaged(f"{name} of {list(found.shape)}, or a vector without an axis")
    axis = one_axis(call, "axis", x.dim())
    if len(found) != x.shape[axis]:
        if len(found) == 1:
            return found.reshape(())
        raise call.damaged(f"{name} has {len(found)} values along an axis of {x.shape[axis]}")
    return found.reshape([-1] + [1] * (x.dim() - axis - 1))


def _scale(call: Call, x: torch.Tensor) -> torch.Tensor:
    found = _along(call, "scale", x)
    if found is None:
        raise call.damaged("scale is missing")
    if call.has("axis"):
        call.integer("axis")  # read even where all is scalar
    return found


def _affine_dequantize(call: Call) -> torch.Tensor:
    return _dequantized(call, call.tensor("quantized_data"))


def _dequantize(call: Call) -> torch.Tensor:
    return _dequantized(call, call.tensor("input"))


def _dequantized(call: Call, data: torch.Tensor) -> torch.Tensor:
    if data.dtype not in (torch.int8, torch.uint8):
        raise call.damaged(f"quantized values are {data.dtype}")
    return shifted_and_scaled(data, _along(call, "zero_point", data), _scale(call, data))


def _quantize(call: Call) -> torch.Tensor:
    x = call.tensor("input")
    scale, zero = _scale(call, x), _along(call, "zero_point", x)
    dtype = STORAGE[call.text("output_dtype", choices=("int8", "uint8"))]
    if zero is not None and zero.dtype != dtype:
        raise call.damaged(f"zero_point is {zero.dtype}, the result {dtype}")
    if scale.dtype != x.dtype or bool((scale == 0).any()):
        raise call.damaged("scale is 0, or of another dtype than input")
    exact = x.float() / scale.float()
    if bool(exact.isnan().any()):
        call.refuse("NaN as an integer")
    shift = torch.zeros(()) if zero is None else zero.float()
    limits = torch.iinfo(dtype)
    # The documentation says round, not which way halves go: both ways must give the same.
    even = (exact.round() + shift).clamp(limits.min, limits.max)
    away = ((exact.abs() + 0.5).floor() * exact.sign() + shift).clamp(limits.min, limits.max)
    if bool(((even != away) & ((exact - exact.trunc()).abs() == 0.5)).any()):
        call.refuse("how a half is rounded")
    return even.to(dtype)


OPERATORS: dict[str, Operator] = {
    "constexpr_affine_dequantize": _affine_dequantize,
    "quantize": _quantize,
    "dequantize": _dequantize,
}
