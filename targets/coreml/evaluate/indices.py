"""Indices as the gather and scatter operators of each operator set take them."""

from __future__ import annotations

import torch

from .call import Call

__all__ = ["given_indices"]


def given_indices(call: Call, indices: torch.Tensor, size: int) -> torch.Tensor:
    """`indices` into an axis of `size`, counted from the front, as int64.

    Up to iOS 16 negative ones count from the back; from iOS 17 they are out of bounds. What an
    index out of bounds gives is undefined, or an error with `validate_indices`.

    Raises:
        UnverifiableError: one is out of bounds.
    """
    validated = call.flag("validate_indices", False)
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise call.damaged("indices are no integers")
    wide = indices.to(torch.int64)
    least = -size if call.opset < 7 else 0
    if wide.numel() and not (least <= int(wide.min()) and int(wide.max()) < size):
        outcome = "is an error at run time" if validated else "is undefined"
        call.refuse(f"an index outside [{least}, {size}), which {outcome}")
    return torch.where(wide < 0, wide + size, wide)
