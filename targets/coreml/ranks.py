"""Operators on tensors without axes, of which Core ML documents nothing, given one of size 1."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from ...exporter.nodes import Editor, tensor_value

__all__ = ["is_without_axes", "with_an_axis"]

aten = torch.ops.aten

_AXES = {"dim", "dims", "axis", "dim0", "dim1"}
# Operators that coremltools gives an axis of their own accord, or whose axes it does not look at.
_FINE = {
    *(aten.unsqueeze.default, aten.expand.default, aten.reshape.default, aten.view.default),
    *(aten.sym_size.int, aten.permute.default, aten._to_copy.default, aten.full.default),
}
# These work along axes without naming any.
_AT_LEAST_ONE = {
    *(aten.where.self, aten.max.default, aten.min.default, aten.sum.default, aten.mean.default),
    *(aten.prod.default, aten.any.default, aten.all.default),
}


def is_without_axes(node: Node) -> bool:
    """Whether an operator that works along axes gets a tensor that has none."""
    target = node.target
    if target in _FINE or not isinstance(target, torch._ops.OpOverload):
        return False
    names = {argument.name for argument in target._schema.arguments}
    if not (names & _AXES or target in _AT_LEAST_ONE):
        return False
    values = [tensor_value(leaf) for leaf in pytree.tree_leaves((node.args, node.kwargs))]
    return any(value is not None and value.dim() == 0 for value in values)


def with_an_axis(editor: Editor, node: Node) -> Any:
    """The operator on tensors of rank 1, and its results without that axis; None for others."""
    if not is_without_axes(node):
        return None

    def raised(item: Any) -> Any:
        value = tensor_value(item)
        if value is None or value.dim():
            return item
        return editor.call(node, aten.unsqueeze.default, item, 0)

    args, kwargs = pytree.tree_map(raised, (node.args, node.kwargs))
    target: Any = node.target
    result = editor.call(node, target, *args, **kwargs)
    wanted = node.meta["val"]
    if isinstance(wanted, torch.Tensor):
        return _lowered(editor, node, result, wanted)
    import operator

    return [
        _lowered(editor, node, editor.call(node, operator.getitem, result, index), value)
        for index, value in enumerate(wanted)
    ]


def _lowered(editor: Editor, node: Node, result: Node, wanted: torch.Tensor) -> Node:
    found = tensor_value(result)
    if found is not None and found.dim() > wanted.dim():
        return editor.call(node, aten.squeeze.dims, result, [0], value=wanted)
    return result
