"""What the frontend or the CPU plug-in computes wrongly, and what takes its place.

Measured with OpenVINO 2026.4.1; tests/targets/openvino/test_operators.py compares each with
eager torch. A rule here gets a node of the decomposed program and returns its replacement, or
None where it cannot help; `fault` then refuses the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import Editor, argument, tensor_value

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["fault", "repaired"]

aten = torch.ops.aten


def fault(node: Node) -> str:
    """Why the frontend's translation of this node is wrong; empty if it is not."""
    rule = _REFUSED.get(node.target)
    return rule(node) if rule is not None else ""


def repaired(program: ExportedProgram) -> None:
    """Rewrite in place what the frontend gets wrong and has a right form."""
    graph = program.graph_module.graph
    editor = Editor(graph)
    for node in list(graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        value = rule(editor, node) if rule is not None else None
        if value is not None:
            editor.replace(node, value)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _floor_division(editor: Editor, node: Node) -> Any:
    """`//` of integers, which the frontend truncates; less its remainder, `a` divides exactly."""
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    if "rounding_mode" in names and argument(node, "rounding_mode") != "floor":
        return None
    result = tensor_value(node)
    if result is None or result.dtype.is_floating_point:
        return None
    a, b = (_as_tensor(editor, node, item, result.dtype) for item in node.args[:2])
    left = editor.call(node, aten.remainder.Tensor, a, b)
    whole = editor.call(node, aten.sub.Tensor, a, left)
    return editor.call(
        node, aten.div.Tensor_mode, whole, b, rounding_mode="trunc", value=node.meta["val"]
    )


def _as_tensor(editor: Editor, node: Node, item: Any, dtype: torch.dtype) -> Any:
    value = tensor_value(item)
    if value is None:
        scalar = node.meta["val"].new_full([], item, dtype=dtype)
        return editor.call(node, aten.full.default, [], item, dtype=dtype, value=scalar)
    if value.dtype == dtype:
        return item
    return editor.call(node, aten._to_copy.default, item, dtype=dtype)


_RULES: dict[Any, Any] = {
    aten.floor_divide.default: _floor_division,
    aten.div.Tensor_mode: _floor_division,
}

_REFUSED: dict[Any, Any] = {
    aten._cdist_forward.default: lambda node: "the frontend's distances are wrong",
}
