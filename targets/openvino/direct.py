"""Programs that need no retrace: convolutional networks, whose few operators are rewritten here.

torch's `run_decompositions` takes most of a conversion's time (ResNet-50: 7 of 10 s). It leaves
the operators below as they are, so where a program holds no others it is left out.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ...exporter.legalize import is_mutating
from ...exporter.nodes import Editor, argument
from ...exporter.rules.common import RULES, Rule

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["made_direct"]

aten = torch.ops.aten

_KEPT = {
    *(aten.convolution.default, aten._native_batch_norm_legit_no_training.default),
    *(aten.linear.default, aten.relu.default, aten.hardswish.default, aten.hardsigmoid.default),
    *(aten.sigmoid.default, aten.tanh.default, aten.silu.default, aten.gelu.default),
    *(aten.add.Tensor, aten.mul.Tensor, aten.cat.default, aten.mean.dim),
    *(aten.max_pool2d_with_indices.default, aten.reshape.default, aten.view.default),
    operator.getitem,
}


def _convolution(editor: Editor, node: Node) -> Any:
    x, weight, bias, stride, padding, dilation, groups = (
        argument(node, entry.name)
        for entry in node.target._schema.arguments  # type: ignore[union-attr]
    )
    rank = node.meta["val"].dim() - 2
    if node.meta["val"].dim() != weight.meta["val"].dim():
        return None  # without a batch axis
    sizes = ([*one] * rank if len(one) == 1 else [*one] for one in (stride, padding, dilation))
    return editor.call(
        node,
        aten.convolution.default,
        *(x, weight, bias, *sizes, False, [0] * rank, groups),
        value=node.meta["val"],
    )


def _max_pool(editor: Editor, node: Node) -> Any:
    value = node.meta["val"]
    pair = (value, value.to(torch.int64))
    pooled = editor.call(
        node, aten.max_pool2d_with_indices.default, *node.args, value=pair, **node.kwargs
    )
    return editor.call(node, operator.getitem, pooled, 0, value=value)


_REWRITTEN: dict[Any, Rule] = {
    aten.conv1d.default: _convolution,
    aten.conv2d.default: _convolution,
    aten.conv3d.default: _convolution,
    aten.max_pool2d.default: _max_pool,
    **{
        target: RULES[target]
        for target in (
            *(aten.batch_norm.default, aten.flatten.using_ints),
            aten.adaptive_avg_pool2d.default,
        )
    },
}


def made_direct(program: ExportedProgram) -> bool:
    """Rewrite `program` in place for the frontend, if operators of this module are all it has.

    Returns:
        Whether it needs no retrace. If not, what was rewritten computes the same.
    """
    graph = program.graph_module.graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if any(is_mutating(n) or n.target not in (_KEPT | _REWRITTEN.keys()) for n in calls):
        return False
    editor = Editor(graph)
    for node in calls:
        rule = _REWRITTEN.get(node.target)
        value = rule(editor, node) if rule is not None else None
        if value is not None:
            editor.replace(node, value)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.reshape.default:
            node.target = aten.view.default
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return all(n.target in _KEPT for n in graph.nodes if n.op == "call_function")
