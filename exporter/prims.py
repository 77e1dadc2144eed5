"""torch's primitive operators (`torch.ops.prims`) written in ATen ones.

torch's decompositions end in primitives here and there. They are simpler than ATen operators: no
broadcasting, no type promotion, so that each has an ATen operator that computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from .nodes import Editor, tensor_value

__all__ = ["as_aten"]

aten = torch.ops.aten

_RENAMED = {
    **{"erf_inv": "erfinv", "bessel_i0": "i0", "bessel_i0e": "special_i0e"},
    **{"bessel_i1": "special_i1", "bessel_i1e": "special_i1e", "bessel_j0": "special_bessel_j0"},
    **{"bessel_j1": "special_bessel_j1", "erfcx": "special_erfcx", "ndtri": "special_ndtri"},
    **{"zeta": "special_zeta", "shift_left": "bitwise_left_shift"},
}
# Operators of one or two tensors, with ATen's meaning where shapes and dtypes agree.
_ELEMENTWISE = {
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "bitwise_not"),
    *("ceil", "digamma", "erf", "erfc", "exp", "expm1", "exp2", "floor", "isfinite", "lgamma"),
    *("log", "log1p", "log2", "log10", "neg", "reciprocal", "round", "rsqrt", "sign", "signbit"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc", "erf_inv", "erfcx", "ndtri"),
    *("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "bessel_j0", "bessel_j1", "zeta"),
    *("add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "fmax", "fmin", "fmod"),
    *("ge", "gt", "hypot", "le", "lt", "maximum", "minimum", "mul", "ne", "nextafter", "pow"),
    *("remainder", "shift_left", "sub", "gcd", "igamma", "igammac"),
}


def as_aten(editor: Editor, node: Node) -> Any:
    """The ATen operators that compute what a primitive does, or None where none is known."""
    name = str(node.target).split(".")[1]
    if (rule := _RULES.get(name)) is not None:
        return rule(editor, node)
    return _elementwise(editor, node, name) if name in _ELEMENTWISE else None


def _elementwise(editor: Editor, node: Node, name: str) -> Any:
    packet = getattr(aten, _RENAMED.get(name, name), None)
    if packet is None or node.kwargs:
        return None
    args = list(node.args)
    if len(args) == 1:
        return _call(editor, node, packet.default, args[0])
    if len(args) != 2:
        return None
    if not isinstance(args[0], Node):
        args[0] = _scalar(editor, node, args[0])
    numbers = not isinstance(args[1], Node)
    if numbers and "Scalar" not in packet.overloads() and "Tensor_Scalar" not in packet.overloads():
        args[1], numbers = _scalar(editor, node, args[1]), False
    names = ("Scalar", "Tensor_Scalar") if numbers else ("Tensor", "Tensor_Tensor", "default")
    overload = next(getattr(packet, n) for n in names if n in packet.overloads())
    return _call(editor, node, overload, *args)


def _call(editor: Editor, node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    return editor.call(node, target, *args, value=node.meta["val"], **kwargs)


def _scalar(editor: Editor, node: Node, number: Any) -> Node:
    """A number as a tensor of the dtype that the other operand has."""
    other = next(v for arg in node.args if (v := tensor_value(arg)) is not None)
    return editor.call(node, aten.full.default, [], number, dtype=other.dtype)


def _div(editor: Editor, node: Node) -> Any:
    """Whole numbers are divided towards zero."""
    args = [a if isinstance(a, Node) else _scalar(editor, node, a) for a in node.args]
    if node.meta["val"].dtype.is_floating_point:
        return _call(editor, node, aten.div.Tensor, *args)
    return _call(editor, node, aten.div.Tensor_mode, *args, rounding_mode="trunc")


def _convert(editor: Editor, node: Node) -> Any:
    return _call(editor, node, aten._to_copy.default, node.args[0], dtype=node.args[1])


def _where(editor: Editor, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    args = [
        a if isinstance(a, Node) else editor.call(node, aten.full.default, [], a, dtype=dtype)
        for a in node.args
    ]
    return _call(editor, node, aten.where.self, *args)


def _broadcast(editor: Editor, node: Node) -> Any:
    """Axis i of the operand becomes axis `dimensions[i]` of the result."""
    x, shape, dimensions = node.args
    taken: Any = dimensions
    for axis in range(len(shape)):  # type: ignore[arg-type]
        if axis not in taken:
            x = editor.call(node, aten.unsqueeze.default, x, axis)
    return _call(editor, node, aten.expand.default, x, shape)


def _reduction(target: Any) -> Callable[[Editor, Node], Any]:
    def rule(editor: Editor, node: Node) -> Any:
        return _call(editor, node, target, node.args[0], node.args[1])

    return rule


def _sum(editor: Editor, node: Node) -> Any:
    """Integers are summed in their own type; ATen's default is int64."""
    dtype = node.meta["val"].dtype
    kwargs = {} if dtype.is_floating_point or dtype.is_complex else {"dtype": dtype}
    return _call(editor, node, aten.sum.dim_IntList, node.args[0], node.args[1], **kwargs)


def _same_arguments(target: Any) -> Callable[[Editor, Node], Any]:
    def rule(editor: Editor, node: Node) -> Any:
        return _call(editor, node, target, *node.args)

    return rule


def _squeeze(editor: Editor, node: Node) -> Any:
    return _call(editor, node, aten.squeeze.dims, node.args[0], node.args[1])


def _iota(editor: Editor, node: Node) -> Any:
    """`iota(length, start=, step=, dtype=)`."""
    length, given = node.args[0], node.kwargs
    start, step = given["start"], given["step"]
    if not all(isinstance(number, int) for number in (length, start, step)):
        return None
    return _call(
        editor,
        node,
        aten.arange.start_step,
        *(start, start + length * step, step),  # type: ignore[operator]
        dtype=given["dtype"],
    )


_RULES: dict[str, Callable[[Editor, Node], Any]] = {
    "div": _div,
    "convert_element_type": _convert,
    "where": _where,
    "broadcast_in_dim": _broadcast,
    "sum": _sum,
    "amax": _reduction(aten.amax.default),
    "amin": _reduction(aten.amin.default),
    "squeeze": _squeeze,
    "transpose": _same_arguments(aten.permute.default),
    "reshape": _same_arguments(aten.reshape.default),
    "cat": _same_arguments(aten.cat.default),
    "rev": _same_arguments(aten.flip.default),
    "iota": _iota,
    "view_of": lambda _editor, node: node.args[0],
    "clone": lambda _editor, node: node.args[0],
}
