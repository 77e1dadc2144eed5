"""How operators that coremltools lacks, or takes wrongly, are written in ones that it takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ...exporter.decompositions import decompose
from ...exporter.nodes import Editor
from ...exporter.rules import RULES as _SHARED
from ...exporter.rules import Rule
from ...exporter.special_functions import SPECIAL_RULES
from .creation import CREATION_RULES
from .ranks import with_an_axis

__all__ = ["RULES", "otherwise"]

aten = torch.ops.aten


def otherwise(editor: Editor, node: Node) -> Any:
    """What is tried where no rule helps."""
    if (value := with_an_axis(editor, node)) is not None:
        return value
    return decompose(editor, node)


def _trunc(editor: Editor, node: Node) -> Any:
    x, value = node.args[0], node.meta["val"]
    negative = editor.call(node, aten.lt.Scalar, x, 0)
    ceil = editor.call(node, aten.ceil.default, x, value=value)
    floor = editor.call(node, aten.floor.default, x, value=value)
    return editor.call(node, aten.where.self, negative, ceil, floor, value=value)


RULES: dict[Any, Rule] = {
    **_SHARED,
    **SPECIAL_RULES,
    **CREATION_RULES,
    aten.trunc.default: _trunc,
}
