"""Views that PyTorch makes with strides, written as picking by index: diagonals, windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..decompositions import inlined
from ..nodes import Editor, tensor_value
from .common import Rule

__all__ = ["STRIDED_RULES"]

aten = torch.ops.aten


def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    length = _length(rows, columns, offset)
    first = offset if offset >= 0 else -offset * columns
    places = first + torch.arange(length) * (columns + 1)
    return x.flatten(-2).index_select(-1, places)


def _length(rows: int, columns: int, offset: int) -> int:
    return max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)


def _diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    hit = torch.arange(rows)[:, None] + offset == torch.arange(columns)[None, :]
    if offset >= 0:  # element i of the diagonal lies in row i
        missing = rows - _length(rows, columns, offset)
        spread = torch.nn.functional.pad(src, (0, missing)).unsqueeze(-1)
    else:
        missing = columns - _length(rows, columns, offset)
        spread = torch.nn.functional.pad(src, (0, missing)).unsqueeze(-2)
    return torch.where(hit, spread, moved).movedim((-2, -1), (dim1, dim2))


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> Tensor:
    """Where the elements of a strided view lie in the flat storage."""
    places = torch.full([1] * max(len(size), 1), offset)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[axis] = count
        places = places + (torch.arange(count) * step).reshape(shape)
    return places.reshape(-1)


def _as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    places = _places(size, stride, storage_offset or 0)
    return x.reshape(-1).index_select(0, places).reshape(list(size))


def _as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    places = _places(size, stride, storage_offset or 0)
    return x.reshape(-1).index_copy(0, places, src.reshape(-1)).reshape(x.shape)


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not x.dim():
        return x.reshape(1)[:size]
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    places = (torch.arange(count) * step)[:, None] + torch.arange(size)[None, :]
    picked = x.index_select(dim, places.reshape(-1))
    windows = picked.reshape([*x.shape[:dim], count, size, *x.shape[dim + 1 :]])
    return windows.movedim(dim + 1, -1)


def _static(function: Any) -> Rule:
    """The rule for a function that needs sizes that are known."""

    def rule(editor: Editor, node: Node) -> Any:
        values = [tensor_value(node), tensor_value(node.args[0])]
        if any(v is None or any(not isinstance(s, int) for s in v.shape) for v in values):
            return None
        return inlined(editor, node, function)

    return rule


def _in_storage_order(function: Any) -> Rule:
    """The rule for views of the storage, which a tensor shows in order only if it is contiguous."""
    known = _static(function)

    def rule(editor: Editor, node: Node) -> Any:
        value = tensor_value(node.args[0])
        if value is None or not value.is_contiguous() or value.storage_offset():
            return None
        if any(value.stride()[i] != math.prod(value.shape[i + 1 :]) for i in range(value.dim())):
            return None
        return known(editor, node)

    return rule


STRIDED_RULES: dict[Any, Rule] = {
    **dict.fromkeys((aten.diagonal.default, aten.diagonal_copy.default), _static(_diagonal)),
    aten.diagonal_scatter.default: _static(_diagonal_scatter),
    **dict.fromkeys(
        (aten.as_strided.default, aten.as_strided_copy.default), _in_storage_order(_as_strided)
    ),
    aten.as_strided_scatter.default: _in_storage_order(_as_strided_scatter),
    **dict.fromkeys((aten.unfold.default, aten.unfold_copy.default), _static(_unfold)),
}
