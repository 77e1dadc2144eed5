"""Convolutions and their transposes, in two and three dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .call import Call, Operator
from .widening import require_floats, wide, widened
from .windows import Padding, padded, paddings, shared

__all__ = ["OPERATORS"]

_CONVOLUTIONS = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
_TRANSPOSES = {2: torch.nn.functional.conv_transpose2d, 3: torch.nn.functional.conv_transpose3d}


@dataclass(frozen=True)
class _Filter:
    kernel: torch.Tensor
    bias: torch.Tensor | None
    stride: list[int]
    dilation: list[int]
    groups: int

    @property
    def window(self) -> list[int]:
        """DK = 1 + D * (F - 1)."""
        return [
            1 + dilation * (size - 1)
            for size, dilation in zip(self.kernel.shape[2:], self.dilation, strict=True)
        ]


def _filter(call: Call, transposed: bool) -> _Filter:
    """Kernel and bias from weights, or from the inputs 1 and 2.

    Weights are GKCRS for a convolution and CKRS for a deconvolution, the groups dividing what
    torch divides too.
    """
    value = call.tensor()
    sizes = call.integers("kernel_size_nd")
    maps, groups = call.integer("num_output_maps"), call.integer("num_groups")
    rank = len(sizes)
    if rank not in _CONVOLUTIONS or value.dim() != rank + 2:
        call.refuse(f"a kernel of rank {rank} on an input of rank {value.dim()}")
    channels = value.shape[1]
    shape = [channels, maps // groups] if transposed else [maps, channels // groups]
    kernel, bias = call.optional(1), call.optional(2)
    weights, offsets = call.weights("kernel"), call.weights("bias")
    if kernel is None:
        if weights is None:
            raise call.contradiction("it has no kernel")
        kernel = wide(weights).reshape(shape + sizes)
    if list(kernel.shape) != shape + sizes:
        raise call.contradiction(f"its kernel is {list(kernel.shape)}, not {shape + sizes}")
    if bias is None and offsets is not None:
        bias = wide(offsets)
    require_floats(call, value, kernel, bias)
    return _Filter(kernel, bias, call.integers("stride_nd"), call.integers("dilation_nd"), groups)


def _convolution(call: Call) -> torch.Tensor:
    value = call.tensor()
    found = _filter(call, transposed=False)
    around = paddings(call, list(value.shape[2:]), found.window, found.stride)
    if any(padding.beyond for padding in around):
        call.refuse("a window that reaches beyond the padding")
    compute = _CONVOLUTIONS[len(found.stride)]
    symmetric = all(padding.before == padding.after for padding in around)
    inside = [padding.before for padding in around] if symmetric else 0
    value = value if symmetric else padded(value, around, 0.0)
    return compute(
        value, found.kernel, found.bias, found.stride, inside, found.dilation, found.groups
    )


def _deconvolution(call: Call) -> torch.Tensor:
    """The whole transpose, cut at its edges: O = (I - 1) * S + DK - (B + A)."""
    value = call.tensor()
    found = _filter(call, transposed=True)
    call.ignore("padding_nd")  # the older name of pre_padding
    mode = call.choice("padding_mode", {name: name for name in _EXPLICIT | _SAME})
    if mode in _EXPLICIT:
        given = zip(call.integers("pre_padding"), call.integers("post_padding"), strict=True)
        cuts = [Padding(before, after) for before, after in given]
    else:
        call.ignore("pre_padding", "post_padding")  # the mode takes precedence
        axes = zip(found.window, found.stride, strict=True)
        cuts = [shared(mode, max(window - stride, 0)) for window, stride in axes]
    if any(min(cut.before, cut.after) < 0 for cut in cuts):
        call.refuse("a negative padding")
    compute = _TRANSPOSES[len(found.stride)]
    whole = compute(
        value, found.kernel, found.bias, found.stride, 0, 0, found.groups, found.dilation
    )
    for axis, cut in enumerate(cuts, start=2):
        whole = whole.narrow(axis, cut.before, whole.shape[axis] - cut.before - cut.after)
    return whole


_EXPLICIT = {"EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP"}
_SAME = {"SAME_UPPER", "SAME_LOWER"}

OPERATORS: dict[str, Operator] = {
    "CONVOLUTION": widened(_convolution),
    "DECONVOLUTION": widened(_deconvolution),
}
