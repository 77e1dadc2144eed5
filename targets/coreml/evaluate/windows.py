"""Where the windows of convolutions and pooling lie.

Sources: the documentation of the MIL operators `conv` and `avg_pool`, and Apple's comments on
`ValidPadding`, `SamePadding` and `PoolingLayerParams` in the Core ML model format
(NeuralNetwork.proto), which say what the former leave out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from .call import Call

__all__ = ["fitted", "per_dimension", "same_before", "spatial_rank"]


def spatial_rank(call: Call, x: torch.Tensor) -> int:
    """How many spatial dimensions `x`, [n, C, *D], has: 1 to 3."""
    if not 3 <= x.dim() <= 5:
        raise call.damaged(f"x has rank {x.dim()}, not 3 to 5")
    return x.dim() - 2


def per_dimension(
    call: Call, name: str, count: int, least: int, default: int | None = None
) -> list[int]:
    """An integer argument with `count` entries, none below `least`."""
    given = call.integers(name) if default is None else call.integers(name, [default] * count)
    if len(given) != count:
        raise call.damaged(f"{name} has {len(given)} entries where {count} belong")
    if min(given, default=least) < least:
        raise call.damaged(f"{name} has an entry below {least}")
    return given


def same_before(
    call: Call, size: int, kernel: int, stride: int, *, lower: bool, also: int | None
) -> int:
    """How much `pad_type="same"` pads before a dimension of `size`; "same_lower" if `lower`.

    `SamePadding` pads max(0, (ceil(size / stride) - 1) * stride + kernel - size) in all, the odd
    one after, or before if `lower`. `also` is what the operator's own documentation says, if it
    says anything that can be; where the two contradict each other nothing is known.
    """
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    before = -(-total // 2) if lower else total // 2
    if also is not None and also != before:
        call.refuse(
            f"the documentation contradicts itself on whether pad_type=same pads {before} or "
            f"{also} before a dimension of {size} (window {kernel}, stride {stride})"
        )
    return before


def fitted(
    x: torch.Tensor, before: Sequence[int], sizes: Sequence[int], value: float
) -> torch.Tensor:
    """`x`, [n, C, *D], preceded by `before` and brought to the spatial `sizes`, with `value`."""
    pads: list[int] = []
    for have, ahead, want in zip(x.shape[2:], before, sizes, strict=True):
        pads = [ahead, want - ahead - have, *pads]
    # A negative pad crops, which is right: no window reaches what lies there.
    return functional.pad(x, pads, value=value)
