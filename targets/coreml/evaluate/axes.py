"""Axes, sizes and limits that operators on shapes have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .call import Call
from .types import TensorType

__all__ = ["AFFORDABLE", "affordable", "axis_within", "bounded", "named_axes", "one_axis"]

AFFORDABLE = 2**30
"""Elements of the largest tensor that is made; constants lie in the file and may be larger.

4 GiB of float32: a damaged file must not take the machine's memory.
"""


def axis_within(call: Call, axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        InputFileError: it is not in `[-rank, rank)`.
    """
    if not -rank <= axis < rank:
        raise call.damaged(f"axis {axis} does not exist among {rank}")
    return axis % rank


def one_axis(call: Call, name: str, rank: int, default: int | None = None) -> int:
    """The axis that parameter `name` gives, counted from the front."""
    given = call.integer(name) if default is None else call.integer(name, default)
    return axis_within(call, given, rank)


def named_axes(call: Call, rank: int) -> list[int]:
    """The parameter `axes`, counted from the front; all of them where it is not given."""
    given = call.integers("axes") if call.has("axes") else list(range(rank))
    if not given:
        call.refuse("axes that name no axis")
    if any(not -rank <= axis < rank for axis in given):
        raise call.damaged(f"axes {given} of a tensor of rank {rank}")
    axes = [axis % rank for axis in given]
    if len(set(axes)) != len(axes):
        raise call.damaged(f"axes {given} name an axis twice")
    return axes


def affordable(call: Call, shape: Sequence[int]) -> None:
    """Check the shape of a tensor that is about to be made.

    Raises:
        InputFileError: it has a negative size, or more elements than the file declares.
        UnverifiableError: it has more than `AFFORDABLE` elements.
    """
    if any(size < 0 for size in shape):
        raise call.damaged(f"the size of its result is {list(shape)}")
    declared = call.result_type()
    if (
        isinstance(declared, TensorType)
        and declared.shape is not None
        and any(want not in (None, size) for want, size in zip(declared.shape, shape, strict=False))
    ):
        raise call.damaged(f"its result is declared {declared} and comes to {list(shape)}")
    bounded(call, shape)


def bounded(call: Call, shape: Sequence[int]) -> None:
    """Check the shape of a tensor that is made on the way to a result.

    Raises:
        UnverifiableError: it has more than `AFFORDABLE` elements.
    """
    if math.prod(shape) > AFFORDABLE:
        call.refuse(f"a tensor of {list(shape)} is larger than this evaluator makes")
