"""Scatter: elements and slices written by index."""

from __future__ import annotations

import math

import torch

from .axes import one_axis
from .call import Call, Operator
from .indices import given_indices

__all__ = ["OPERATORS"]

_MODES = ("update", "add", "sub", "mul", "div", "max", "min")


def _scatter(call: Call) -> torch.Tensor:
    data, raw, updates = _arguments(call)
    axis = one_axis(call, "axis", data.dim(), 0)
    if raw.dim() != 1:
        raise call.damaged(f"indices has {raw.dim()} axes, not one")
    if updates.shape != data.shape[:axis] + raw.shape + data.shape[axis + 1 :]:
        raise call.damaged(f"updates of {list(updates.shape)} do not fit {list(data.shape)}")
    if not call.has("mode"):
        call.refuse("no mode: the text says update, the signature add")
    indices = given_indices(call, raw, data.shape[axis])
    places = torch.arange(data.numel()).reshape(data.shape).index_select(axis, indices)
    return _combined(call, data, places, updates)


def _scatter_along_axis(call: Call) -> torch.Tensor:
    data, raw, updates = _arguments(call)
    axis = one_axis(call, "axis", data.dim(), 0)
    if raw.dim() != data.dim() or any(
        want > size
        for place, (want, size) in enumerate(zip(raw.shape, data.shape, strict=True))
        if place != axis
    ):
        raise call.damaged(f"indices of {list(raw.shape)} for {list(data.shape)}")
    if updates.shape != raw.shape:
        raise call.damaged(f"updates of {list(updates.shape)} for indices of {list(raw.shape)}")
    indices = given_indices(call, raw, data.shape[axis])
    places = torch.arange(data.numel()).reshape(data.shape).gather(axis, indices)
    return _combined(call, data, places, updates)


def _scatter_nd(call: Call) -> torch.Tensor:
    data, raw, updates = _arguments(call)
    depth = raw.shape[-1] if raw.dim() else 0
    if raw.dim() == 0 or depth > data.dim():
        raise call.damaged(f"indices of {list(raw.shape)} for {data.dim()} axes")
    if updates.shape != raw.shape[:-1] + data.shape[depth:]:
        raise call.damaged(f"updates of {list(updates.shape)} do not fit {list(data.shape)}")
    linear = torch.zeros(raw.shape[:-1], dtype=torch.int64)
    for axis, size in enumerate(data.shape[:depth]):
        linear = linear * size + given_indices(call, raw[..., axis], size)
    call.flag("validate_indices", False)  # read even where there is nothing to index
    each = math.prod(data.shape[depth:])
    places = linear[..., None] * each + torch.arange(each)
    return _combined(call, data, places, updates)


def _arguments(call: Call) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    data, updates = call.tensor("data"), call.tensor("updates")
    if data.dtype != updates.dtype:
        raise call.damaged("data and updates differ in dtype")
    return data, call.tensor("indices"), updates


def _combined(
    call: Call, data: torch.Tensor, places: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    """`data` with each update combined into the element of its place, in order."""
    mode = call.text("mode", "add", _MODES)
    flat, places, new = data.reshape(-1).clone(), places.reshape(-1), updates.reshape(-1)
    if mode == "update":
        flat[places] = new
        kept = flat[places]
        if not bool(((kept == new) | ((kept != kept) & (new != new))).all()):
            call.refuse("two different updates of one element")
    elif mode in ("max", "min"):
        if bool((new != new).any() or (flat != flat).any()):
            call.refuse(f"{mode} of NaN")
        flat.scatter_reduce_(0, places, new, "amax" if mode == "max" else "amin")
    else:
        wide = call.accumulate if flat.dtype == torch.float16 else flat.dtype
        flat = _folded(call, mode, flat.to(wide), places, new.to(wide))
    return flat.to(data.dtype).reshape(data.shape)


def _folded(
    call: Call, mode: str, flat: torch.Tensor, places: torch.Tensor, new: torch.Tensor
) -> torch.Tensor:
    """Arithmetic with the updates; where several meet one element, one after the other."""
    if mode in ("add", "sub"):
        return flat.index_add_(0, places, new if mode == "add" else -new)
    for part in _rounds(places):
        old, by = flat[places[part]], new[part]
        if mode == "mul":
            flat[places[part]] = old * by
            continue
        if flat.is_floating_point():
            flat[places[part]] = old / by
            continue
        if bool((by == 0).any()) or bool((old % by != 0).any()):
            call.refuse("a division of integers that leaves a remainder")
        flat[places[part]] = torch.div(old, by, rounding_mode="trunc")
    return flat


def _rounds(places: torch.Tensor) -> list[torch.Tensor]:
    """Positions in `places`, in groups that name no element twice, in their order."""
    order = torch.argsort(places, stable=True)
    ordered = places[order]
    positions = torch.arange(len(ordered))
    first = torch.searchsorted(ordered, ordered)
    turn = torch.empty_like(positions)
    turn[order] = positions - first
    count = int(turn.max()) + 1 if len(turn) else 0
    return [torch.nonzero(turn == index).reshape(-1) for index in range(count)]


OPERATORS: dict[str, Operator] = {
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along_axis,
    "scatter_nd": _scatter_nd,
}
