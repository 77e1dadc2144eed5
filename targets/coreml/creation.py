"""Operators that make tensors out of numbers, all as `full` and `arange`, which coremltools reads.

Its translations of the others leave the dtype out, and so make floats where integers belong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ...exporter.nodes import Editor, tensor_value
from ...exporter.rules.common import Rule, eye

__all__ = ["CREATION_RULES", "filled", "sizes_of"]

aten = torch.ops.aten


def filled(editor: Editor, node: Node, shape: Any, number: Any, dtype: torch.dtype) -> Node:
    """A tensor of one number; without axes a literal, since Core ML's `fill` has no rank 0."""
    if dtype == torch.bool:
        number = bool(number)
    elif dtype.is_floating_point:
        number = float(number)
    else:
        number = int(number)
    if len(shape):
        return editor.call(node, aten.full.default, list(shape), number, dtype=dtype)
    # A number's own type gives the dtype: float32, int32 or bool.
    own = {bool: torch.bool, int: torch.int64, float: torch.float32}[type(number)]
    value = editor.call(node, aten.full.default, [], number, dtype=own).meta["val"]
    literal = editor.call(node, aten.scalar_tensor.default, number, value=value)
    if dtype == own or dtype in (torch.int32, torch.float64):
        return literal
    return editor.call(node, aten._to_copy.default, literal, dtype=dtype)


def sizes_of(editor: Editor, node: Node, x: Any) -> list[Any]:
    """The sizes of a tensor, known ones as numbers."""
    value = tensor_value(x)
    assert value is not None, "a tensor argument stands for a tensor"
    return [
        size if isinstance(size, int) else editor.call(node, aten.sym_size.int, x, axis)
        for axis, size in enumerate(value.shape)
    ]


def _is_plain(node: Node, number: Any) -> bool:
    """Whether `full` is what coremltools reads as it is meant."""
    shape: Any = node.args[0]
    return bool(len(shape)) and "dtype" in node.kwargs and not isinstance(number, Node)


def _full(editor: Editor, node: Node) -> Any:
    shape, number = node.args[0], node.args[1]
    if isinstance(number, Node) or _is_plain(node, number):
        return None
    return filled(editor, node, shape, number, node.meta["val"].dtype)


def _constant(number: float, shape_at: int = 0) -> Rule:
    def rule(editor: Editor, node: Node) -> Any:
        return filled(editor, node, node.args[shape_at], number, node.meta["val"].dtype)

    return rule


def _like(number: float) -> Rule:
    def rule(editor: Editor, node: Node) -> Any:
        sizes = sizes_of(editor, node, node.args[0])
        return filled(editor, node, sizes, number, node.meta["val"].dtype)

    return rule


def _full_like(editor: Editor, node: Node) -> Any:
    if isinstance(node.args[1], Node):
        return None
    sizes = sizes_of(editor, node, node.args[0])
    return filled(editor, node, sizes, node.args[1], node.meta["val"].dtype)


def _new_full(editor: Editor, node: Node) -> Any:
    if isinstance(node.args[2], Node):
        return None
    return filled(editor, node, node.args[1], node.args[2], node.meta["val"].dtype)


def _scalar_tensor(editor: Editor, node: Node) -> Any:
    if isinstance(node.args[0], Node):
        return None
    return filled(editor, node, [], node.args[0], node.meta["val"].dtype)


def _arange(editor: Editor, node: Node) -> Any:
    """Numbers as they are given, whole or not; then the dtype that was asked for."""
    if not node.kwargs.get("dtype"):
        return None
    value = node.meta["val"]
    args = [0, *node.args] if len(node.args) == 1 else list(node.args)
    target = aten.arange.start_step if len(args) == 3 else aten.arange.start
    counted = editor.call(node, target, *args)
    return editor.call(node, aten._to_copy.default, counted, dtype=value.dtype, value=value)


def _linspace(editor: Editor, node: Node) -> Any:
    """coremltools makes float32 of whatever dtype is asked for, and reads no other argument."""
    value = node.meta["val"]
    if not node.kwargs.get("dtype") or any(isinstance(arg, Node) for arg in node.args):
        return None
    if value.dtype == torch.float32:
        return editor.call(node, aten.linspace.default, *node.args, value=value)
    return None


CREATION_RULES: dict[Any, Rule] = {
    aten.full.default: _full,
    aten.full_like.default: _full_like,
    aten.linspace.default: _linspace,
    aten.new_full.default: _new_full,
    aten.scalar_tensor.default: _scalar_tensor,
    **dict.fromkeys((aten.zeros.default, aten.empty.memory_format), _constant(0)),
    aten.empty_strided.default: _constant(0),
    aten.ones.default: _constant(1),
    **dict.fromkeys((aten.new_zeros.default, aten.new_empty.default), _constant(0, 1)),
    aten.new_empty_strided.default: _constant(0, 1),
    aten.new_ones.default: _constant(1, 1),
    **dict.fromkeys((aten.zeros_like.default, aten.empty_like.default), _like(0)),
    aten.ones_like.default: _like(1),
    **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), _arange),
    **dict.fromkeys((aten.eye.default, aten.eye.m), eye),
}
