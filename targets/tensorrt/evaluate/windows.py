"""Windows that slide over the last axes: how far the input is padded and where it is sampled.

The formulas are those of `PaddingMode` in TensorRT's C++ reference, with its letters: input I,
padding before it B and after it A, stride S, window DK (dilated), output O.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .call import Call

__all__ = ["Padding", "padded", "paddings", "shared"]


@dataclass(frozen=True)
class Padding:
    """Padding of one axis, and by how much the last window reaches beyond it."""

    before: int
    after: int
    beyond: int = 0


def paddings(call: Call, sizes: list[int], window: list[int], stride: list[int]) -> list[Padding]:
    """The padding of each axis for a convolution or a pooling.

    Args:
        sizes: of the input along the window's axes.
        window: sizes of the window, dilation included.
    """
    call.ignore("padding_nd")  # the older name of pre_padding
    mode = call.choice("padding_mode", {name: name for name in _MODES})
    if mode.startswith("EXPLICIT"):
        given = zip(call.integers("pre_padding"), call.integers("post_padding"), strict=True)
        found = [Padding(before, after) for before, after in given]
        if any(min(padding.before, padding.after) < 0 for padding in found):
            call.refuse("a negative padding")
        if mode == "EXPLICIT_ROUND_UP":
            found = [_rounded_up(*axis) for axis in zip(sizes, window, stride, found, strict=True)]
        return found
    call.ignore("pre_padding", "post_padding")  # the mode takes precedence
    return [_same(call, mode, *axis) for axis in zip(sizes, window, stride, strict=True)]


_MODES = ("EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER")


def _rounded_up(size: int, window: int, stride: int, given: Padding) -> Padding:
    """O = ceil((M - DK) / S) + 1, M = I + B + A."""
    room = size + given.before + given.after - window
    return Padding(given.before, given.after, -room % stride)


def _same(call: Call, mode: str, size: int, window: int, stride: int) -> Padding:
    """O = ceil(I / S), P = floor((I - 1) / S) * S + DK - I."""
    total = (size - 1) // stride * stride + window - size
    if total < 0:
        call.refuse("SAME padding of a window smaller than its stride")
    return shared(mode, total)


def shared(mode: str, total: int) -> Padding:
    """SAME_UPPER pads more after the input, SAME_LOWER before it."""
    less = total // 2
    return Padding(less, total - less) if mode == "SAME_UPPER" else Padding(total - less, less)


def padded(value: torch.Tensor, found: list[Padding], fill: float) -> torch.Tensor:
    """The input with what the windows cover beside it."""
    amounts = [
        amount
        for padding in reversed(found)
        for amount in (padding.before, padding.after + padding.beyond)
    ]
    return torch.nn.functional.pad(value, amounts, value=fill) if any(amounts) else value
