"""How single ATen operators are rewritten: what does nothing at inference, what has equals.

A rule gets the node and returns what takes its place: a node, or one node per
result (None for a result that nothing uses), or None if it cannot help. Every
rule is exact for real arithmetic and reads every argument of the operator.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from ..nodes import Editor, argument, tensor_value
from .pooling import adaptive_avg_pool, adaptive_max_pool, avg_pool_divisor

__all__ = ["ALWAYS", "CHECKS", "RULES", "Rule", "eye"]

aten = torch.ops.aten

Rule = Callable[[Editor, Node], Any]

# Checks on values and sizes, for which a deployed graph has no place.
CHECKS = {
    *(aten._assert_async.default, aten._assert_async.msg, aten._assert_scalar.default),
    *(aten._assert_tensor_metadata.default, aten.sym_constrain_range.default),
    aten.sym_constrain_range_for_size.default,
}


def _same(_editor: Editor, node: Node) -> Any:
    return node.args[0]


def _inactive_dropout(_editor: Editor, node: Node) -> Any:
    if argument(node, "train") and argument(node, "p") != 0:
        return None
    return node.args[0]


def _conversion(editor: Editor, node: Node) -> Any:
    """`to` and its kind: a cast where the dtype changes, else nothing."""
    source, result = tensor_value(node.args[0]), tensor_value(node)
    if source is None or result is None:
        return None
    if source.dtype == result.dtype:
        return node.args[0]
    return editor.call(node, aten._to_copy.default, node.args[0], dtype=result.dtype, value=result)


_KEEP_VALUE = [
    *(aten.contiguous.default, aten.clone.default, aten.lift_fresh_copy.default),
    *(aten.detach.default, aten.alias.default, aten.lift.default, aten.positive.default),
]
_CONVERSIONS = [
    *(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default),
]
_DROPOUTS = [
    *(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default),
    aten.feature_alpha_dropout.default,
]

ALWAYS: dict[Any, Rule] = {
    **dict.fromkeys(_KEEP_VALUE, _same),
    **dict.fromkeys(_CONVERSIONS, _conversion),
    **dict.fromkeys(_DROPOUTS, _inactive_dropout),
}


# ---------------------------------------------------------------- rules by operator


def _batch_norm(editor: Editor, node: Node) -> Any:
    if argument(node, "training") or node.args[3] is None or node.args[4] is None:
        return None
    x, weight, bias, mean, variance = node.args[:5]
    norm = editor.call(
        node,
        aten._native_batch_norm_legit_no_training.default,
        *(x, weight, bias, mean, variance),
        *(argument(node, "momentum"), argument(node, "eps")),
    )
    return editor.call(node, operator.getitem, norm, 0, value=node.meta["val"])


def _reshape(editor: Editor, node: Node) -> Any:
    """view, flatten, unflatten: a reshape, which takes any memory layout."""
    result = tensor_value(node)
    if result is None:
        return None
    shape = [size if isinstance(size, int) else -1 for size in result.shape]
    if shape.count(-1) > 1 or (-1 in shape and 0 in shape):
        if node.target not in (aten.view.default, aten._unsafe_view.default):
            return None
        shape = list(node.args[1])  # type: ignore[arg-type]
    return editor.call(node, aten.reshape.default, node.args[0], shape, value=node.meta["val"])


# Copies that fixed a layout are gone by now, so a `view` may meet a layout it refuses.
ALWAYS[aten.view.default] = _reshape
ALWAYS[aten._unsafe_view.default] = _reshape


def _rrelu(editor: Editor, node: Node) -> Any:
    """At inference the mean slope is used: https://pytorch.org/docs/stable/nn.html RReLU."""
    if argument(node, "training"):
        return None
    slope = (argument(node, "lower") + argument(node, "upper")) / 2
    return editor.call(node, aten.leaky_relu.default, node.args[0], slope, value=node.meta["val"])


def _scatter_reduce(editor: Editor, node: Node) -> Any:
    reduction = {"add": "sum", "multiply": "prod"}.get(argument(node, "reduce"))
    if reduction is None:
        return None
    return editor.call(
        node, aten.scatter_reduce.two, *node.args[:4], reduction, value=node.meta["val"]
    )


def _scatter_mean(editor: Editor, node: Node) -> Any:
    """The mean of what lands on an element: the sum divided by the count."""
    x, dim, index, source = node.args[:4]
    value = tensor_value(x)
    if argument(node, "reduce") != "mean" or value is None or not value.dtype.is_floating_point:
        return None
    whole = argument(node, "include_self")
    sums = editor.call(
        node, aten.scatter_reduce.two, x, dim, index, source, "sum", include_self=whole
    )
    start = editor.call(node, (aten.ones_like if whole else aten.zeros_like).default, x)
    ones = editor.call(node, aten.ones_like.default, source)
    counts = editor.call(node, aten.scatter_add.default, start, dim, index, ones)
    divisor = editor.call(node, aten.clamp.default, counts, 1.0)
    return editor.call(node, aten.div.Tensor, sums, divisor, value=node.meta["val"])


def _stable_sort(editor: Editor, node: Node) -> Any:
    """Deployed sorts are stable: ONNX's TopK and its kind keep the first of equals first."""
    rest = [argument(node, name) for name in ("dim", "descending")]
    return _results(
        editor,
        node,
        editor.call(node, aten.sort.default, node.args[0], *rest, value=node.meta["val"]),
    )


def _results(editor: Editor, node: Node, call: Node) -> list[Node]:
    """One getitem per result of `call`."""
    values = node.meta["val"]
    return [
        editor.call(node, operator.getitem, call, index, value=value)
        for index, value in enumerate(values)
    ]


def _masked_select(editor: Editor, node: Node) -> Any:
    x, mask = tensor_value(node.args[0]), tensor_value(node.args[1])
    if x is None or mask is None or x.shape != mask.shape:
        return None
    return editor.call(
        node, aten.index.Tensor, node.args[0], [node.args[1]], value=node.meta["val"]
    )


def _wide_indices(editor: Editor, node: Node) -> Any:
    """Index tensors as int64, which is what most runtimes index with."""
    indices: Any = node.args[1]
    narrow = (torch.int32, torch.int16, torch.int8)
    if not any((v := tensor_value(item)) is not None and v.dtype in narrow for item in indices):
        return None
    wide = []
    for item in indices:
        value = tensor_value(item)
        if value is not None and value.dtype in narrow:
            item = editor.call(node, aten._to_copy.default, item, dtype=torch.int64)
        wide.append(item)
    target: Any = node.target
    args = (node.args[0], wide, *node.args[2:])
    return editor.call(node, target, *args, value=node.meta["val"], **node.kwargs)


def _antialiased(editor: Editor, node: Node) -> Any:
    """The `vec` overload, whose sizes may follow from scale factors, as the plain one."""
    result = tensor_value(node)
    if result is None:
        return None
    scales: Any = argument(node, "scale_factors") or [None, None]
    target: Any = node.target
    return editor.call(
        node,
        target.overloadpacket.default,
        node.args[0],
        list(result.shape[-2:]) if argument(node, "output_size") is None else node.args[1],
        argument(node, "align_corners"),
        *scales,
        value=node.meta["val"],
    )


def _resize_by_scale(editor: Editor, node: Node) -> Any:
    """A resize told both size and scale: sample points follow from the scale.

    Rewritten to the overload that is told the scale alone, where that gives the same size.
    """
    x, result = tensor_value(node.args[0]), tensor_value(node)
    target: Any = node.target
    names = [a.name for a in target._schema.arguments if a.name.startswith("scales")]
    scales = [argument(node, name) for name in names]
    if x is None or result is None or not scales or any(scale is None for scale in scales):
        return None
    sizes = x.shape[2:]
    for size, scale, count in zip(sizes, scales, result.shape[2:], strict=True):
        if not isinstance(size, int) or math.floor(size * scale) != count:
            return None
    aligned = [a.name for a in target._schema.arguments if a.name == "align_corners"]
    middle = [argument(node, name) for name in aligned]
    return editor.call(
        node,
        target.overloadpacket.vec,
        *(node.args[0], None, *middle, scales),
        value=node.meta["val"],
    )


def _where_bool(editor: Editor, node: Node) -> Any:
    """Choice between booleans as logic, for runtimes that cannot choose between them."""
    condition, chosen, other = node.args
    given = [item for item in (chosen, other) if isinstance(item, Node)]
    values = [tensor_value(item) for item in given]
    if any(value is None or value.dtype != torch.bool for value in values):
        return None
    if any(not isinstance(item, (Node, bool)) for item in (chosen, other)):
        return None
    first, second = (
        item
        if isinstance(item, Node)
        else editor.call(node, aten.full_like.default, condition, item, dtype=torch.bool)
        for item in (chosen, other)
    )
    inverse = editor.call(node, aten.logical_not.default, condition)
    return editor.call(
        node,
        aten.logical_or.default,
        editor.call(node, aten.logical_and.default, condition, first),
        editor.call(node, aten.logical_and.default, inverse, second),
        value=node.meta["val"],
    )


def _neg_unsigned(editor: Editor, node: Node) -> Any:
    """`-x` on uint8 wraps: the low eight bits of the negative number."""
    x = tensor_value(node.args[0])
    if x is None or x.dtype != torch.uint8:
        return None
    wide = editor.call(node, aten._to_copy.default, node.args[0], dtype=torch.int32)
    wrapped = editor.call(
        node, aten.remainder.Scalar, editor.call(node, aten.neg.default, wide), 256
    )
    return editor.call(
        node, aten._to_copy.default, wrapped, dtype=torch.uint8, value=node.meta["val"]
    )


def _signbit(editor: Editor, node: Node) -> Any:
    """The sign of -0.0 is that of its reciprocal; a NaN has none here."""
    x = tensor_value(node.args[0])
    if x is None or not x.dtype.is_floating_point:
        return None
    inverse = editor.call(node, aten.reciprocal.default, node.args[0])
    return editor.call(
        node,
        aten.logical_or.default,
        editor.call(node, aten.lt.Scalar, node.args[0], 0),
        editor.call(node, aten.lt.Scalar, inverse, 0),
        value=node.meta["val"],
    )


def _relu_integer(editor: Editor, node: Node) -> Any:
    """`relu` on integers as a clamp in int64."""
    x = tensor_value(node.args[0])
    if x is None or x.dtype.is_floating_point or x.dtype.is_complex:
        return None
    source: Any = node.args[0]
    if not x.dtype.is_signed:
        return source
    if x.dtype != torch.int64:
        source = editor.call(node, aten._to_copy.default, source, dtype=torch.int64)
    clamped = editor.call(node, aten.clamp.default, source, 0)
    if x.dtype == torch.int64:
        return clamped
    return editor.call(node, aten._to_copy.default, clamped, dtype=x.dtype, value=node.meta["val"])


def _aminmax(editor: Editor, node: Node) -> Any:
    dim, keep = argument(node, "dim"), argument(node, "keepdim")
    low, high = node.meta["val"]
    axes = [] if dim is None else [dim]
    return [
        editor.call(node, aten.amin.default, node.args[0], axes, keep, value=low),
        editor.call(node, aten.amax.default, node.args[0], axes, keep, value=high),
    ]


def _over_all_axes(editor: Editor, node: Node) -> Any:
    """`amin` and `amax` without axes, which converters want to be told."""
    keep = argument(node, "keepdim")
    target: Any = node.target
    return editor.call(node, target, node.args[0], [], keep, value=node.meta["val"])


def eye(editor: Editor, node: Node) -> Any:
    """An identity matrix: where the row's number is the column's."""
    value = node.meta["val"]
    rows = editor.call(node, aten.arange.start, 0, node.args[0])
    columns = editor.call(node, aten.arange.start, 0, node.args[-1])
    rows = editor.call(node, aten.unsqueeze.default, rows, 1)
    same = editor.call(node, aten.eq.Tensor, rows, columns)
    return editor.call(node, aten._to_copy.default, same, dtype=value.dtype, value=value)


RULES: dict[Any, Rule] = {
    aten.eye.default: eye,
    aten.eye.m: eye,
    aten.amin.default: _over_all_axes,
    aten.amax.default: _over_all_axes,
    aten.where.self: _where_bool,
    aten.where.ScalarSelf: _where_bool,
    aten.where.ScalarOther: _where_bool,
    aten.where.Scalar: _where_bool,
    aten.signbit.default: _signbit,
    aten.neg.default: _neg_unsigned,
    aten.relu.default: _relu_integer,
    aten.aminmax.default: _aminmax,
    aten.batch_norm.default: _batch_norm,
    aten.flatten.using_ints: _reshape,
    aten.unflatten.int: _reshape,
    aten.view_as.default: _reshape,
    aten.reshape_as.default: _reshape,
    aten.adaptive_avg_pool1d.default: adaptive_avg_pool,
    aten.adaptive_avg_pool2d.default: adaptive_avg_pool,
    aten.adaptive_avg_pool3d.default: adaptive_avg_pool,
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,
    aten.adaptive_max_pool1d.default: adaptive_max_pool,
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.avg_pool2d.default: avg_pool_divisor,
    aten.avg_pool3d.default: avg_pool_divisor,
    aten.rrelu.default: _rrelu,
    aten.scatter.reduce: _scatter_reduce,
    aten.scatter_reduce.two: _scatter_mean,
    aten.sort.stable: _stable_sort,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _wide_indices,
    aten.index_put.default: _wide_indices,
    aten._unsafe_index.Tensor: _wide_indices,
    aten._unsafe_index_put.default: _wide_indices,
    aten._upsample_bilinear2d_aa.vec: _antialiased,
    aten._upsample_bicubic2d_aa.vec: _antialiased,
    aten.upsample_nearest1d.default: _resize_by_scale,
    aten.upsample_nearest2d.default: _resize_by_scale,
    aten.upsample_nearest3d.default: _resize_by_scale,
    aten.upsample_linear1d.default: _resize_by_scale,
    aten.upsample_bilinear2d.default: _resize_by_scale,
    aten.upsample_trilinear3d.default: _resize_by_scale,
    aten.upsample_bicubic2d.default: _resize_by_scale,
}
