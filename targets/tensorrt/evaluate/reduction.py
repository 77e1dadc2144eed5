"""Layers that reduce along axes, or order or normalise what lies along one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, Operator, torch_dtype
from .widening import known, require_floats, require_room, widened

__all__ = ["OPERATORS"]

# "Values larger than 3840 will result in a runtime error."
_MOST_TOPK = 3840
_NUMBERS = (torch.float32, torch.int32, torch.int64)


def _reduce(call: Call) -> torch.Tensor:
    value, axes = call.tensor(), call.axes()
    keep = call.flag("keep_dims")
    if not axes:
        call.refuse("it reduces no axis")
    if value.dtype not in _NUMBERS:
        call.refuse(f"it reduces {str(value.dtype).removeprefix('torch.')}")
    compute = call.choice("op", _REDUCTIONS)
    return compute(call, value, axes, keep)


def _sum(call: Call, value: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    found = value.sum(axes, keepdim=keep, dtype=value.dtype)
    if not value.is_floating_point():
        require_room(call, found, value.sum(axes, keepdim=keep, dtype=torch.float64))
    return found


def _product(call: Call, value: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    exact = value.double()
    for axis in reversed(axes):
        exact = exact.prod(axis, keepdim=keep)
        value = value.prod(axis, keepdim=keep, dtype=value.dtype)
    require_room(call, value, exact)
    return value


def _mean(call: Call, value: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    """The average; of integers only where it is one, since its rounding is not documented."""
    if value.is_floating_point():
        return value.mean(axes, keepdim=keep)
    count = _volume(value, axes)
    sums = value.sum(axes, keepdim=keep, dtype=torch.int64)
    if count == 0:
        return sums.to(value.dtype)  # 0, says ReduceOperation of int32
    if bool((sums % count != 0).any()):
        call.refuse("the average of integers is not an integer")
    return torch.div(sums, count, rounding_mode="floor").to(value.dtype)


def _extreme(
    compute: Callable[..., torch.Tensor], of_nothing: float, of_no_integer: str
) -> Callable[[Call, torch.Tensor, list[int], bool], torch.Tensor]:
    def run(call: Call, value: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
        known(call, value)
        if _volume(value, axes):
            return compute(value, axes, keepdim=keep)
        # The table of ReduceOperation: infinities, and the ends of int32.
        start = of_nothing
        if not value.is_floating_point():
            start = getattr(torch.iinfo(value.dtype), of_no_integer)
        return value.sum(axes, keepdim=keep, dtype=value.dtype).fill_(start)

    return run


def _volume(value: torch.Tensor, axes: list[int]) -> int:
    count = 1
    for axis in axes:
        count *= value.shape[axis]
    return count


_REDUCTIONS: dict[str, Callable[[Call, torch.Tensor, list[int], bool], torch.Tensor]] = {
    "SUM": _sum,
    "PROD": _product,
    "AVG": _mean,
    "MAX": _extreme(torch.amax, -torch.inf, "min"),
    "MIN": _extreme(torch.amin, torch.inf, "max"),
}


def _topk(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest or smallest in order, and where they were.

    Which of two equal elements comes first is not documented, so the indices are refused where
    that decides them and something reads them; the values are known.
    """
    value = call.tensor()
    axis = _only_axis(call)
    largest = call.choice("op", {"MAX": True, "MIN": False})
    indices_dtype = torch_dtype(call.value("indices_type"), call)
    if call.optional(1) is None:
        k = call.integer("k")
    else:
        call.ignore("k")  # the second input overrides it
        (k,) = call.integers_of(1)
    if value.dtype not in _NUMBERS:
        call.refuse(f"it orders {str(value.dtype).removeprefix('torch.')}")
    known(call, value)
    if not 0 < k <= min(value.shape[axis], _MOST_TOPK):
        call.refuse(f"k is {k} of {value.shape[axis]}, and TensorRT takes at most {_MOST_TOPK}")
    ordered, indices = value.sort(dim=axis, descending=largest)
    # The last one may tie with one that is left out.
    shown = min(k, value.shape[axis] - 1)
    ties = ordered.narrow(axis, 0, shown) == ordered.narrow(axis, 1, shown)
    if call.used(1) and bool(ties.any()):
        call.refuse("elements tie, and their indices are used")
    return ordered.narrow(axis, 0, k), indices.narrow(axis, 0, k).to(indices_dtype)


def _softmax(call: Call) -> torch.Tensor:
    value = call.tensor()
    require_floats(call, value)
    return torch.softmax(value, _only_axis(call))


def _only_axis(call: Call) -> int:
    """The one axis of a mask that may set no more ("Currently, only one axis can be set")."""
    axes = call.axes()
    if len(axes) != 1:
        call.refuse(f"it works along axes {axes}")
    return axes[0]


OPERATORS: dict[str, Operator] = {
    "REDUCE": widened(_reduce),
    "TOPK": widened(_topk),
    "SOFTMAX": widened(_softmax),
}
