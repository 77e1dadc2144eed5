"""Sorting, choosing and counting: topk, argsort, non_zero, one_hot, classify."""

from __future__ import annotations

import torch

from .axes import affordable, axis_within, one_axis
from .call import Call, Operator, Unknown
from .suppression import OPERATORS as _SUPPRESSION
from .types import STORAGE

__all__ = ["OPERATORS"]


def _sorted(call: Call, x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices of `x` in the order that `ascending` asks for."""
    if x.is_floating_point() and bool(x.isnan().any()):
        call.refuse("the order of NaN")
    values, indices = x.sort(dim=axis, descending=not call.flag("ascending", False), stable=True)
    return values, indices


def _has_ties(ordered: torch.Tensor, axis: int, count: int) -> bool:
    """Whether one of the first `count` values equals its neighbour, the one behind them too."""
    reach = min(count + 1, ordered.shape[axis])
    if reach < 2 or count < 1:
        return False
    front = ordered.narrow(axis, 0, reach)
    return bool((front.narrow(axis, 0, reach - 1) == front.narrow(axis, 1, reach - 1)).any())


def _topk(call: Call) -> tuple[torch.Tensor | Unknown, ...]:
    x, count = call.tensor("x"), call.integer("k", 1)
    axis = one_axis(call, "axis", x.dim(), -1)
    if count == -1 and call.opset >= 7:
        count = x.shape[axis]
    if not 0 < count <= x.shape[axis]:
        raise call.damaged(f"k is {count} on an axis of {x.shape[axis]}")
    values, indices = _sorted(call, x, axis)
    top = values.narrow(axis, 0, count)
    ordered = call.flag("sort", True)
    if not ordered and count > 1:
        call.refuse("the order of the chosen with sort=False")
    if not call.flag("return_indices", True):
        return (top,)
    dtype = call.text("output_indices_dtype", "int32", ("int32", "uint16"))
    chosen = indices.narrow(axis, 0, count)
    if _has_ties(values, axis, count):
        return top, call.unknown("the indices of equal values")
    if dtype == "uint16" and chosen.numel() and int(chosen.max()) > 65535:
        return top, call.unknown("an index beyond 65535 as uint16")
    return top, chosen.to(STORAGE[dtype])


def _argsort(call: Call) -> torch.Tensor:
    x = call.tensor("x")
    axis = one_axis(call, "axis", x.dim(), -1)
    values, indices = _sorted(call, x, axis)
    if _has_ties(values, axis, x.shape[axis]):
        call.refuse("the indices of equal values")
    return indices.to(torch.int32)


def _non_zero(call: Call) -> torch.Tensor:
    """Row-major order, the one in which MIL lays out every tensor."""
    x = call.tensor("x")
    if x.dim() == 0:
        call.refuse("x of rank 0")
    return torch.nonzero(x).to(torch.int32)


def _one_hot(call: Call) -> torch.Tensor:
    indices, size = call.tensor("indices"), call.integer("one_hot_vector_size")
    axis = axis_within(call, call.integer("axis", -1), indices.dim() + 1)
    dtype = STORAGE[call.result_dtype()]
    on, off = call.value("on_value", 1), call.value("off_value", 0)
    if indices.is_floating_point() or size < 0:
        raise call.damaged(f"one_hot_vector_size is {size}, indices of {indices.dtype}")
    if bool(((indices < 0) | (indices >= size)).any()):
        call.refuse(f"an index outside [0, {size})")
    affordable(call, [*indices.shape[:axis], size, *indices.shape[axis:]])
    hot = indices.unsqueeze(axis) == torch.arange(size).reshape([-1] + [1] * (indices.dim() - axis))
    return torch.where(hot, torch.as_tensor(on).to(dtype), torch.as_tensor(off).to(dtype))


def _classify(call: Call) -> tuple[object, dict[object, float]]:
    probabilities, classes = call.tensor("probabilities"), list(call.value("classes"))
    labels = [item.item() if isinstance(item, torch.Tensor) else item for item in classes]
    scores = probabilities.reshape(-1).tolist()
    if not labels or len(labels) != len(scores):
        raise call.damaged(f"{len(labels)} classes for {len(scores)} probabilities")
    if len(set(labels)) != len(labels):
        call.refuse("one label of two classes")
    best = max(scores)
    if bool(probabilities.isnan().any()) or scores.count(best) > 1:
        call.refuse("the label where the largest probability is not one alone")
    label = classes[scores.index(best)]
    return label, dict(zip(labels, scores, strict=True))


OPERATORS: dict[str, Operator] = {
    "topk": _topk,
    "argsort": _argsort,
    "non_zero": _non_zero,
    "one_hot": _one_hot,
    "classify": _classify,
    **_SUPPRESSION,
}
