"""Which integers and booleans rounding noise changes, and what follows from them in a sequence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["unstable_elements"]

# A decoder feeds each token into the next step: one that is decided by rounding changes what comes
# after it, and may lead to ties that no lane has met. Where at least this share of the rest of a
# row differs, in the very evaluation that decided otherwise, the row is such a sequence; labels
# that tie here and there are none.
_CARRIED_SHARE = 0.5

# Of a shorter rest nobody can tell; its elements count one by one.
_SHORTEST_REST = 3


def unstable_elements(
    truth: NDArray[Any], evaluations: Iterable[NDArray[Any]]
) -> NDArray[np.bool_]:
    """Elements that differ in any evaluation, and the rest of a sequence after the first of them.

    Sequences run along the last axis.
    """
    unstable = np.zeros(truth.shape, np.bool_)
    for values in evaluations:
        different = values != truth
        unstable |= different
        if truth.dtype.kind in "iu" and truth.ndim and different.any():
            unstable |= _carried(different)
    return unstable


def _carried(different: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """All that follows the first difference of a row, where most of it differs."""
    length = different.shape[-1]
    first = np.where(different.any(-1), different.argmax(-1), length)
    rest = length - 1 - first
    follows = np.arange(length) > first[..., None]
    wrong = np.count_nonzero(different & follows, axis=-1)
    sequence = (rest >= _SHORTEST_REST) & (wrong >= _CARRIED_SHARE * rest)
    return np.asarray(follows & sequence[..., None])
