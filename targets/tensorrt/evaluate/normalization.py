"""Normalisations over axes or groups of channels, and across neighbouring channels."""

from __future__ import annotations

import torch

from .call import Call, Operator
from .widening import require_floats, widened

__all__ = ["OPERATORS"]


def _normalization(call: Call) -> torch.Tensor:
    """(X - Mean(X, axes)) / Sqrt(Variance(X) + epsilon) * S + B."""
    value, scale, bias = call.tensor(0), call.tensor(1), call.tensor(2)
    require_floats(call, value, scale, bias)
    axes, groups = call.axes(), call.integer("num_groups")
    if groups == 1:
        call.ignore("is_v2")  # the versions differ in the scales of groups
        normal = _normalized(value, axes, call.number("epsilon"))
    else:
        # What the reference of setNbGroups requires: channels second, all that follows in axes.
        if axes != list(range(2, value.dim())) or value.shape[1] % groups:
            call.refuse(f"{groups} groups of {value.shape[1]} channels over axes {axes}")
        split = value.unflatten(1, (groups, -1))
        over = list(range(2, split.dim()))
        normal = _normalized(split, over, call.number("epsilon")).flatten(1, 2)
        if not call.flag("is_v2"):
            # The first version scales groups, the second channels.
            scale, bias = (_by_channel(call, each, value, groups) for each in (scale, bias))
    if scale.dim() != value.dim() or bias.dim() != value.dim():
        call.refuse("a scale or bias of another rank than the input")
    return normal * scale + bias


def _normalized(value: torch.Tensor, axes: list[int], epsilon: float) -> torch.Tensor:
    centred = value - value.mean(axes, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(axes, keepdim=True) + epsilon)


def _by_channel(call: Call, given: torch.Tensor, value: torch.Tensor, groups: int) -> torch.Tensor:
    if given.dim() != value.dim() or given.shape[1] != groups:
        call.refuse("a scale or bias that is not one per group")
    return given.repeat_interleave(value.shape[1] // groups, 1)


def _lrn(call: Call) -> torch.Tensor:
    """Divides by a power of the squares in a window across channels.

    The sum is over window_size channels around the element and divided by window_size, as in the
    results that NVIDIA's operator page prints (its formula leaves that out).
    """
    value = call.tensor()
    require_floats(call, value)
    if value.dim() not in (3, 4):  # the formula names the third axis from the end
        call.refuse(f"an input of rank {value.dim()}")
    window = call.integer("window_size")
    if window % 2 == 0:
        call.refuse(f"an even window of {window}")
    channel = value.dim() - 3
    squares = value.square().movedim(channel, -1)
    around = torch.nn.functional.pad(squares, [window // 2, window // 2])
    sums = around.unfold(-1, window, 1).sum(-1).movedim(-1, channel)
    base = call.number("k") + call.number("alpha") / window * sums
    return value / base.pow(call.number("beta"))


OPERATORS: dict[str, Operator] = {
    "NORMALIZATION": widened(_normalization),
    "LRN": widened(_lrn),
}
