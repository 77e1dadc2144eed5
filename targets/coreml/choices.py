"""`where` between tensors of flexible sizes: each is given the shape of the result first.

coremltools 9.0 does so for fixed sizes alone. With flexible ones it takes the shape of a single
argument for that of the result, and writes a type that the program does not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ...exporter.nodes import Editor, tensor_value

__all__ = ["CHOICE_RULES", "is_uneven"]

aten = torch.ops.aten


def is_uneven(node: Node) -> bool:
    """Whether a `where` broadcasts arguments, one of which has a flexible size."""
    shapes = [value.shape for item in node.args if (value := tensor_value(item)) is not None]
    flexible = any(isinstance(size, torch.SymInt) for shape in shapes for size in shape)
    return flexible and len({tuple(map(str, shape)) for shape in shapes}) > 1


def _evenly(editor: Editor, node: Node) -> Any:
    wanted = tensor_value(node)
    if wanted is None or not is_uneven(node):
        return None
    names = tuple(map(str, wanted.shape))
    sizes: list[Any] = []
    for axis, size in enumerate(wanted.shape):
        sizes.append(size if isinstance(size, int) else _size(editor, node, axis, str(size)))
    if None in sizes:
        return None
    arguments = []
    for item in node.args:
        value = tensor_value(item)
        if value is not None and tuple(map(str, value.shape)) != names:
            shaped = wanted.to(value.dtype)
            item = editor.call(node, aten.expand.default, item, sizes, value=shaped)
        arguments.append(item)
    return editor.call(node, aten.where.self, *arguments, value=wanted)


def _size(editor: Editor, node: Node, axis: int, name: str) -> Node | None:
    """The size of an argument that has the flexible size `name` on an axis of the result."""
    wanted = tensor_value(node)
    for item in node.args:
        value = tensor_value(item)
        if value is None or wanted is None:
            continue
        own = axis - wanted.dim() + value.dim()
        if own >= 0 and str(value.shape[own]) == name:
            return editor.call(node, aten.sym_size.int, item, own)
    return None


CHOICE_RULES = {aten.where.self: _evenly}
