"""Convolutions and transposed convolutions.

`conv_quantized` is documented as experimental, without the shapes of its scale and bias, and is
left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from . import sums
from .axes import bounded
from .call import Call, Operator
from .elementwise import FLOATS, of_dtype
from .windows import fitted, per_dimension, same_before, spatial_rank

__all__ = ["OPERATORS"]


def conv(call: Call) -> torch.Tensor:
    """x [n, C_in, *D] by weight [C_out, C_in / groups, *K]."""
    x, weight, bias = _operands(call, channels_axis=0)
    rank = spatial_rank(call, x)
    strides = per_dimension(call, "strides", rank, 1, 1)
    dilations = per_dimension(call, "dilations", rank, 1, 1)
    groups = call.integer("groups", 1)
    if groups < 1 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise call.damaged(
            f"weight {list(weight.shape)} in {groups} groups does not fit {x.shape[1]} channels"
        )
    kernels = _kernels(weight, dilations)
    before, sizes = [0] * rank, [0] * rank
    for axis, pads in enumerate(_pads(call, x.shape[2:], kernels, strides)):
        before[axis] = pads[0]
        reach = x.shape[2 + axis] + sum(pads) - kernels[axis]
        if reach < 0:
            raise call.damaged(f"the kernel is larger than spatial dimension {axis}")
        sizes[axis] = reach // strides[axis] * strides[axis] + kernels[axis]
    bounded(call, [*x.shape[:2], *sizes])
    padded = fitted(x.float(), before, sizes, 0.0)

    def part(cut: slice) -> torch.Tensor:
        grouped = padded.unflatten(1, (groups, -1))[:, :, cut].flatten(1, 2)
        return _convolution(grouped, weight[:, cut].float(), strides, dilations, groups)

    return _summed(call, x, part, weight.shape[1], math.prod(weight.shape[2:]), bias)


def conv_transpose(call: Call) -> torch.Tensor:
    """x [n, C_in, *D] by weight [C_in, C_out / groups, *K], the gradient of `conv`."""
    x, weight, bias = _operands(call, channels_axis=1)
    rank = spatial_rank(call, x)
    strides = per_dimension(call, "strides", rank, 1, 1)
    dilations = per_dimension(call, "dilations", rank, 1, 1)
    groups = call.integer("groups", 1)
    if groups < 1 or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise call.damaged(
            f"weight {list(weight.shape)} in {groups} groups does not fit {x.shape[1]} channels"
        )
    kernels = _kernels(weight, dilations)
    kept = _transposed_extent(call, x, kernels, strides)
    bounded(call, [x.shape[0], weight.shape[1] * groups, *(last for _, last in kept)])
    output_shape = call.integers("output_shape") if call.has("output_shape") else None
    shape = [x.shape[0], weight.shape[1] * groups, *(last - first for first, last in kept)]
    if output_shape is not None and output_shape != shape:
        call.refuse(f"where an output_shape of {output_shape} lies in the result of {shape}")

    def part(cut: slice) -> torch.Tensor:
        some = x.float().unflatten(1, (groups, -1))[:, :, cut].flatten(1, 2)
        kernel = weight.float().unflatten(0, (groups, -1))[:, cut].flatten(0, 1)
        full = _convolution(some, kernel, strides, dilations, groups, transposed=True)
        for axis, (first, last) in enumerate(kept):
            full = full.narrow(2 + axis, first, last - first)
        return full

    overlap = math.prod(
        -(-size // stride) for size, stride in zip(weight.shape[2:], strides, strict=True)
    )
    return _summed(call, x, part, x.shape[1] // groups, overlap, bias)


OPERATORS: dict[str, Operator] = {"conv": conv, "conv_transpose": conv_transpose}


def _operands(
    call: Call, channels_axis: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    x, weight = of_dtype(call, "x", FLOATS), of_dtype(call, "weight", FLOATS)
    if weight.dim() != x.dim():
        raise call.damaged(f"weight has rank {weight.dim()} and x rank {x.dim()}")
    if not weight.numel() or not x.numel():
        call.refuse("a sum of no terms")
    bias = call.optional_tensor("bias")
    count = weight.shape[channels_axis] * (call.integer("groups", 1) if channels_axis else 1)
    if bias is not None and bias.shape != (count,):
        raise call.damaged(f"bias {list(bias.shape)} does not fit {count} output channels")
    return x, weight, bias


def _kernels(weight: torch.Tensor, dilations: Sequence[int]) -> list[int]:
    """How far the dilated kernel reaches in each spatial dimension."""
    sizes = weight.shape[2:]
    return [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]


def _pads(
    call: Call, sizes: Sequence[int], kernels: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after each spatial dimension."""
    kind = call.text("pad_type", "valid", choices=("valid", "custom", "same", "same_lower"))
    custom = _custom_pads(call, kind, len(sizes))
    if kind in ("valid", "custom"):
        return custom
    if kind == "same_lower" and call.opset < 6:
        call.refuse("pad_type=same_lower in iOS 15")
    found = []
    for size, kernel, stride in zip(sizes, kernels, strides, strict=True):
        # "If dilated_kernel is odd, floor(dilated_kernel / 2), otherwise
        # ceil((dilated_kernel - 1) / 2)": both are kernel // 2.
        lower = kind == "same_lower"
        before = same_before(call, size, kernel, stride, lower=lower, also=kernel // 2)
        reach = (-(-size // stride) - 1) * stride + kernel
        found.append((before, max(0, reach - size - before)))
    return found


def _custom_pads(call: Call, kind: str, rank: int) -> list[tuple[int, int]]:
    pads = per_dimension(call, "pad", 2 * rank, 0, 0)
    if kind != "custom" and any(pads):
        call.refuse(f"pad={pads} with pad_type={kind}")
    return list(zip(pads[::2], pads[1::2], strict=True))


def _transposed_extent(
    call: Call, x: torch.Tensor, kernels: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """First and last (exclusive) index that is kept of each dimension of the full result."""
    kind = call.text("pad_type", "valid", choices=("valid", "custom", "same"))
    custom = _custom_pads(call, kind, len(kernels))
    found = []
    for axis, (size, kernel, stride) in enumerate(zip(x.shape[2:], kernels, strides, strict=True)):
        full = (size - 1) * stride + kernel
        bounded(call, [full])
        first, last = custom[axis][0], full - custom[axis][1]
        if kind == "same":
            # The convolution whose gradient this is went from size * stride to size.
            wide = size * stride
            first = same_before(call, wide, kernel, stride, lower=False, also=kernel // 2)
            last = first + wide
            if last > full:
                call.refuse(f"pad_type=same with stride {stride} and a kernel of {kernel}")
        if last <= first:
            raise call.damaged(f"spatial dimension {axis} comes to {last - first}")
        found.append((first, last))
    return found


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    transposed: bool = False,
) -> torch.Tensor:
    none = [0] * len(strides)
    return torch.convolution(
        x, weight, None, list(strides), none, list(dilations), transposed, none, groups
    )


def _summed(
    call: Call,
    x: torch.Tensor,
    part: Callable[[slice], torch.Tensor],
    channels: int,
    terms: int,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The sum of `part` over all `channels`, each giving `terms` terms, and the bias."""
    if x.dtype != torch.float16:
        found = part(slice(None))
    else:
        short = call.accumulate == torch.float16
        size = max(1, sums.BLOCK // terms) if short else channels
        found = sums.accumulated(map(part, sums.blocks(channels, size)), call.accumulate)
    if bias is not None:
        found = found + bias.float().reshape(-1, *[1] * (x.dim() - 2))
    return found.to(x.dtype)
