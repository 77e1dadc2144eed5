"""Documentation that can be read in several ways."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .call import Call

__all__ = ["agreed"]


def agreed(call: Call, edge: str, readings: Iterable[torch.Tensor]) -> torch.Tensor:
    """The value on which all `readings` of the documentation agree.

    Raises:
        UnverifiableError: two of them differ in a single bit, or hold NaN; `edge` says in what.
    """
    first, *others = readings
    if not all(torch.equal(first, other) for other in others):
        call.refuse(edge)
    return first
