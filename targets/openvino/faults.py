"""What the frontend or the CPU plug-in computes wrongly, and what takes its place.

Measured with OpenVINO 2026.4.1; tests/targets/openvino/test_operators.py compares each with
eager torch. A rule here gets a node of the decomposed program and returns its replacement, or
None where it cannot help; `fault` then refuses the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import Editor, argument, tensor_value
from .integers import INTEGER_RULES, inexact, whole_division

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["fault", "repaired"]

aten = torch.ops.aten


def fault(node: Node) -> str:
    """Why the frontend's translation of this node is wrong; empty if it is not."""
    rule = _REFUSED.get(node.target)
    return (rule(node) if rule is not None else "") or inexact(node)


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


def _division(editor: Editor, node: Node) -> Any:
    result = tensor_value(node)
    if result is None or not result.dtype.is_floating_point:
        return whole_division(editor, node)
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    if "rounding_mode" in names and argument(node, "rounding_mode") == "trunc":
        return _float_truncation(editor, node, result)
    return None


def _float_truncation(editor: Editor, node: Node, result: torch.Tensor) -> Any:
    """Rounded towards zero; the frontend goes through int32 and wraps around."""
    a, b = (_as_tensor(editor, node, item, result.dtype) for item in node.args[:2])
    quotient = editor.call(node, aten.div.Tensor, a, b, value=node.meta["val"])
    return editor.call(
        node,
        aten.where.self,
        editor.call(node, aten.lt.Scalar, quotient, 0),
        editor.call(node, aten.ceil.default, quotient),
        editor.call(node, aten.floor.default, quotient),
        value=node.meta["val"],
    )


def _inexact_quotient(node: Node) -> str:
    """Why `//` of floats may be wrong: OpenVINO rounds the quotient before its floor.

    With a divisor of few bits, multiples of it are exact, and so is the quotient where it counts.
    """
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    if "rounding_mode" in names and argument(node, "rounding_mode") != "floor":
        return ""
    result, divisor = tensor_value(node), node.args[1]
    if result is None or not result.dtype.is_floating_point:
        return ""
    if isinstance(divisor, (int, float)) and float(divisor * 256).is_integer():
        return ""
    return (
        "OpenVINO rounds a quotient of floats before its floor (1.0 // 0.1 gives 10, not 9); "
        "divide integers, or by a number with few bits such as 2.5"
    )


def _log_sigmoid(editor: Editor, node: Node) -> Any:
    """min(x, 0) - log(1 + e^-|x|); the frontend's log of a sigmoid is -inf below about -88."""
    x = node.args[0]
    least = editor.call(
        node, aten.neg.default, editor.call(node, aten.relu.default, _negative(editor, node, x))
    )
    size = _negative(editor, node, editor.call(node, aten.abs.default, x))
    rest = editor.call(node, aten.log1p.default, editor.call(node, aten.exp.default, size))
    result = editor.call(node, aten.sub.Tensor, least, rest, value=tensor_value(x))
    return result if node.target is aten.log_sigmoid.default else [result, None]


def _diagonal(editor: Editor, node: Node) -> Any:
    """Every (columns + 1)-th element of the matrix, flattened, of known size."""
    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or result is None:
        return None
    offset, *axes = (argument(node, name) for name in ("offset", "dim1", "dim2"))
    rows, columns = (axis % x.dim() for axis in axes)
    count, width = result.shape[-1], x.shape[columns]
    others = [axis for axis in range(x.dim()) if axis not in (rows, columns)]
    if not isinstance(count, int) or not isinstance(x.shape[rows] * width, int) or not count:
        return None
    first = offset if offset >= 0 else -offset * width
    places = [first + at * (width + 1) for at in range(count)]
    moved = editor.call(node, aten.permute.default, node.args[0], [*others, rows, columns])
    shape = [size if isinstance(size, int) else -1 for size in result.shape[:-1]]
    if shape.count(-1) > 1:
        return None
    size = x.shape[rows] * width
    # OpenVINO reshapes whatever the layout; torch's view would not.
    value = x.new_empty([*result.shape[:-1], size])
    flat = editor.call(node, aten.view.default, moved, [*shape, size], value=value)
    index = editor.call(
        node,
        aten.arange.start_step,
        *(places[0], places[-1] + 1, width + 1),
        dtype=torch.int64,
        device=torch.device("cpu"),
    )
    return editor.call(node, aten.index_select.default, flat, -1, index, value=result)


def _negative(editor: Editor, node: Node, item: Any) -> Node:
    return editor.call(node, aten.neg.default, item)


def _padded_mean(node: Node) -> str:
    if argument(node, "mode") == 1 and argument(node, "padding_idx") not in (None, -1):
        return "the frontend's mean counts the entries of padding_idx; divide a sum by the count"
    return ""


def _uncorrected(node: Node) -> str:
    """Without axes the frontend divides by n, and it knows no correction but 0 and 1."""
    correction = argument(node, "correction")
    correction = 1 if correction is None else correction
    if correction == 0 or (correction == 1 and argument(node, "dim")):
        return ""
    return "the frontend's variance of all axes is the biased one; name the axes, correction=1"


def _as_tensor(editor: Editor, node: Node, item: Any, dtype: torch.dtype) -> Any:
    value = tensor_value(item)
    if value is None:
        scalar = node.meta["val"].new_full([], item, dtype=dtype)
        return editor.call(node, aten.full.default, [], item, dtype=dtype, value=scalar)
    if value.dtype == dtype:
        return item
    return editor.call(node, aten._to_copy.default, item, dtype=dtype)


_RULES: dict[Any, Any] = {
    **INTEGER_RULES,
    aten.floor_divide.default: _division,
    aten.div.Tensor_mode: _division,
    **dict.fromkeys((aten.log_sigmoid.default, aten.log_sigmoid_forward.default), _log_sigmoid),
    aten.diagonal.default: _diagonal,
}

_VARIANCES = (aten.var, aten.std, aten.var_mean, aten.std_mean)

_REFUSED: dict[Any, Any] = {
    **{packet.correction: _uncorrected for packet in _VARIANCES},
    aten.floor_divide.default: _inexact_quotient,
    aten.div.Tensor_mode: _inexact_quotient,
    aten.embedding_bag.padding_idx: _padded_mean,
    aten._embedding_bag.default: _padded_mean,
    aten._embedding_bag_forward_only.default: _padded_mean,
    aten._cdist_forward.default: lambda node: "the frontend's distances are wrong",
}
