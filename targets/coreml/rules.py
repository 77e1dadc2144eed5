"""How operators that coremltools lacks are written in ones that it has."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ...exporter.nodes import Editor
from ...exporter.rules import RULES as _SHARED

__all__ = ["RULES"]

aten = torch.ops.aten


def _scalar_tensor(editor: Editor, node: Node) -> Any:
    value = node.meta["val"]
    return editor.call(node, aten.full.default, [], node.args[0], dtype=value.dtype, value=value)


def _trunc(editor: Editor, node: Node) -> Any:
    x, value = node.args[0], node.meta["val"]
    negative = editor.call(node, aten.lt.Scalar, x, 0)
    ceil = editor.call(node, aten.ceil.default, x, value=value)
    floor = editor.call(node, aten.floor.default, x, value=value)
    return editor.call(node, aten.where.self, negative, ceil, floor, value=value)


RULES = {
    **_SHARED,
    aten.scalar_tensor.default: _scalar_tensor,
    aten.trunc.default: _trunc,
}
