"""Transposes of more than five axes, in fewer: axes that stay side by side move as one.

Core ML has no tensors of more than five axes. coremltools 9.0 lowers these itself where all sizes
are fixed, and refuses them where one is dynamic, as in windows cut out of a batch of images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ...exporter.nodes import Editor, tensor_value

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["merge_axes"]

aten = torch.ops.aten

_MOST = 5
_RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)
_TO_A_SHAPE = (*_RESHAPES, aten.flatten.using_ints)
_SAME_ORDER = (aten.contiguous.default, aten.clone.default)


def merge_axes(program: ExportedProgram) -> None:
    """Rewrite `reshape(permute(reshape(x)))` in place, where the middle has over five axes."""
    graph = program.graph_module.graph
    editor = Editor(graph)
    for node in list(graph.nodes):
        if node.target in _TO_A_SHAPE and (value := _in_fewer(editor, node)) is not None:
            editor.replace(node, value)
    graph.eliminate_dead_code()


def _in_fewer(editor: Editor, node: Node) -> Node | None:
    permuted: Any = node.args[0]
    while permuted.target in _SAME_ORDER:
        permuted = permuted.args[0]
    if permuted.target is not aten.permute.default:
        return None
    before: Any = permuted.args[0]
    value = tensor_value(before)
    if value is None or value.dim() <= _MOST or before.target not in _RESHAPES:
        return None
    order = [axis % value.dim() for axis in permuted.args[1]]
    runs = _runs(order)
    sizes = [_size(value.shape[run[0] : run[-1] + 1]) for run in sorted(runs)]
    if len(runs) > _MOST or sizes.count(-1) > 1:
        return None
    merged = editor.call(node, aten.reshape.default, before.args[0], sizes)
    places = [sorted(runs).index(run) for run in runs]
    moved = editor.call(node, aten.permute.default, merged, places)
    value = node.meta["val"]
    shape: Any = (
        node.args[1] if node.target in _RESHAPES else [_size([size]) for size in value.shape]
    )
    if shape.count(-1) > 1:
        return None
    return editor.call(node, aten.reshape.default, moved, shape, value=value)


def _runs(order: list[int]) -> list[list[int]]:
    """Axes in their new order, those together that follow one another as before."""
    runs: list[list[int]] = []
    for axis in order:
        if runs and axis == runs[-1][-1] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _size(sizes: Iterable[Any]) -> int:
    """The number of elements along axes; -1, which a reshape may have once, for a dynamic one."""
    known = list(sizes)
    return math.prod(known) if all(isinstance(size, int) for size in known) else -1
