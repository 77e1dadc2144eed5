"""Rewrites that keep ExecuTorch's kernels exact. All are equalities of real arithmetic.

Measured with executorch 1.5.1, as multiples of eager torch's rounding error: sums along any
but the last axis, and all means, are added up one by one in float32 (8 to 80 times for a
thousand and more numbers); group and instance norm take variances as E[x^2] - E[x]^2 (50 to
115), and so does layer norm below 256 numbers (10 to 260); softmax 3. A sum along the last
axis is exact enough, and everything here is brought back to that. XNNPACK computes
`gelu(approximate="tanh")` as the erf form, without a word: 2e-4 off. `remainder` of integers
has the wrong sign.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ...exporter.nodes import Editor, argument, tensor_value
from ...exporter.rules.common import Rule

__all__ = ["accurate_rules"]

aten = torch.ops.aten


def accurate_rules(backend: str) -> dict[Any, Rule]:
    """Rules for a program of core ATen operators."""
    rules: dict[Any, Rule] = {
        aten.mean.dim: _mean,
        aten.mean.default: _mean,
        aten.sum.dim_IntList: _sum,
        aten.sum.default: _sum,
        aten.var.correction: _var,
        aten.native_layer_norm.default: _layer_norm,
        aten.native_group_norm.default: _group_norm,
        aten._native_batch_norm_legit.no_stats: _batch_statistics_norm,
        aten.remainder.Tensor: _integer_remainder,
        aten.remainder.Scalar: _integer_remainder,
    }
    if backend == "xnnpack":
        return {
            **rules,
            aten.gelu.default: _tanh_gelu,
            aten._softmax.default: _inner_softmax,
            aten.prelu.default: _prelu,
        }
    return {**rules, aten._softmax.default: _softmax}


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


def _axes(node: Node, rank: int) -> list[int]:
    """The axes that are reduced; all where none is named."""
    target: Any = node.target
    names = [a.name for a in target._schema.arguments]
    given = argument(node, "dim") if "dim" in names else None
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return list(range(rank))
    return sorted({axis % rank for axis in ([given] if isinstance(given, int) else given)})


def _keepdim(node: Node) -> bool:
    target: Any = node.target
    names = [a.name for a in target._schema.arguments]
    return "keepdim" in names and bool(argument(node, "keepdim"))


def _sizes(editor: Editor, node: Node, x: Node) -> list[Any]:
    """The shape of `x` as a view takes it: a single size that varies is -1."""
    value = tensor_value(x)
    assert value is not None
    varying = [axis for axis, size in enumerate(value.shape) if not isinstance(size, int)]
    sizes: list[Any] = list(value.shape)
    for axis in varying:
        alone = len(varying) == 1
        sizes[axis] = -1 if alone else editor.call(node, aten.sym_size.int, x, axis)
    return sizes


def _axis_sum(editor: Editor, node: Node, x: Node, axes: Sequence[int]) -> Node:
    """Sum of `x` along `axes`, which are kept with size 1, by sums along the last axis alone."""
    value = tensor_value(x)
    assert value is not None
    rank = value.dim()
    kept = [axis for axis in range(rank) if axis not in axes]
    order = [*kept, *axes]
    total = x
    if order != list(range(rank)):
        total = editor.call(node, aten.permute.default, x, order)
    for _ in axes:  # one by one: partial sums keep the error small
        total = editor.call(node, aten.sum.dim_IntList, total, [-1], False)
    for axis in axes:
        total = editor.call(node, aten.unsqueeze.default, total, axis)
    return total


def _divided(editor: Editor, node: Node, total: Node, x: Node, axes: Sequence[int]) -> Node:
    """`total` by the number of elements along `axes` of `x`."""
    value = tensor_value(x)
    assert value is not None
    sizes = [value.shape[axis] for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        return editor.call(node, aten.div.Tensor, total, float(math.prod(sizes)))
    ones = editor.call(node, aten.full_like.default, x, 1.0)
    count = _axis_sum(editor, node, ones, axes)
    return editor.call(node, aten.div.Tensor, total, count)


def _axis_mean(editor: Editor, node: Node, x: Node, axes: Sequence[int]) -> Node:
    return _divided(editor, node, _axis_sum(editor, node, x, axes), x, axes)


def _finished(editor: Editor, node: Node, kept: Node, axes: Sequence[int]) -> Node:
    """Drop the axes of size 1 where the operator does."""
    if _keepdim(node) or not axes:
        return kept
    return editor.call(node, aten.squeeze.dims, kept, list(axes), value=node.meta["val"])


def _sum(editor: Editor, node: Node) -> Any:
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or not _is_float(tensor_value(node)):
        return None
    axes = _axes(node, value.dim())
    if not axes or axes == [value.dim() - 1]:
        return None
    return _finished(editor, node, _axis_sum(editor, node, x, axes), axes)


def _mean(editor: Editor, node: Node) -> Any:
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or not _is_float(tensor_value(node)):
        return None
    axes = _axes(node, value.dim())
    if not axes or 0 in [value.shape[axis] for axis in axes]:
        return None
    return _finished(editor, node, _axis_mean(editor, node, x, axes), axes)


def _var(editor: Editor, node: Node) -> Any:
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value):
        return None
    axes = _axes(node, value.dim())
    correction = argument(node, "correction")
    sizes = [value.shape[axis] for axis in axes]
    if not axes or not all(isinstance(size, int) for size in sizes):
        return None
    count = math.prod(sizes) - (1 if correction is None else correction)
    if count <= 0:
        return None
    squares = _axis_sum(editor, node, _squares(editor, node, x, axes), axes)
    return _finished(editor, node, editor.call(node, aten.div.Tensor, squares, float(count)), axes)


def _centred(editor: Editor, node: Node, x: Node, axes: Sequence[int]) -> Node:
    return editor.call(node, aten.sub.Tensor, x, _axis_mean(editor, node, x, axes))


def _squares(editor: Editor, node: Node, x: Node, axes: Sequence[int]) -> Node:
    centred = _centred(editor, node, x, axes)
    return editor.call(node, aten.mul.Tensor, centred, centred)


def _normalized(editor: Editor, node: Node, x: Node, axes: Sequence[int], eps: float) -> Node:
    centred = _centred(editor, node, x, axes)
    squares = editor.call(node, aten.mul.Tensor, centred, centred)
    variance = _axis_mean(editor, node, squares, axes)
    shifted = editor.call(node, aten.add.Tensor, variance, eps)
    return editor.call(
        node, aten.mul.Tensor, centred, editor.call(node, aten.rsqrt.default, shifted)
    )


def _only_first_is_used(node: Node) -> bool:
    return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)


def _layer_norm(editor: Editor, node: Node) -> Any:
    """The same of the centred input: then E[x]^2 is nothing beside E[x^2]."""
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or not _only_first_is_used(node):
        return None
    axes = list(range(value.dim() - len(argument(node, "normalized_shape")), value.dim()))
    target: Any = node.target
    centred = _centred(editor, node, x, axes)
    norm = editor.call(node, target, centred, *node.args[1:], value=node.meta["val"])
    return [editor.call(node, operator.getitem, norm, 0, value=node.meta["val"][0]), None, None]


def _affine(
    editor: Editor, node: Node, x: Node, weight: Any, bias: Any, rank: int, value: Any
) -> Node:
    """`x * weight + bias`, both along axis 1."""
    shape = [1, -1, *([1] * (rank - 2))]
    for target, factor in ((aten.mul.Tensor, weight), (aten.add.Tensor, bias)):
        if factor is not None:
            row = editor.call(node, aten.view_copy.default, factor, shape)
            x = editor.call(node, target, x, row)
    x.meta["val"] = value
    return x


def _group_norm(editor: Editor, node: Node) -> Any:
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or not _only_first_is_used(node):
        return None
    groups = argument(node, "group")
    weight, bias, eps = (argument(node, name) for name in ("weight", "bias", "eps"))
    sizes = _sizes(editor, node, x)
    split = [sizes[0], groups, value.shape[1] // groups, *sizes[2:]]
    grouped = editor.call(node, aten.view_copy.default, x, split)
    axes = list(range(2, value.dim() + 1))
    norm = _normalized(editor, node, grouped, axes, eps)
    whole = editor.call(node, aten.view_copy.default, norm, sizes)
    return [
        _affine(editor, node, whole, weight, bias, value.dim(), node.meta["val"][0]),
        None,
        None,
    ]


def _batch_statistics_norm(editor: Editor, node: Node) -> Any:
    """Batch norm by the batch's own statistics, which is how instance norm arrives here."""
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or not _only_first_is_used(node):
        return None
    weight, bias, eps = (argument(node, name) for name in ("weight", "bias", "eps"))
    axes = [axis for axis in range(value.dim()) if axis != 1]
    norm = _normalized(editor, node, x, axes, eps)
    return [
        _affine(editor, node, norm, weight, bias, value.dim(), node.meta["val"][0]),
        None,
        None,
    ]


def _softmax(editor: Editor, node: Node) -> Any:
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or not _is_float(value) or argument(node, "half_to_float"):
        return None
    if value.dim() == 0:
        return None
    axis = argument(node, "dim") % value.dim()
    if value.shape[axis] == 0:
        return None
    top = editor.call(node, aten.amax.default, x, [axis], True)
    power = editor.call(node, aten.exp.default, editor.call(node, aten.sub.Tensor, x, top))
    total = _axis_sum(editor, node, power, [axis])
    return editor.call(node, aten.div.Tensor, power, total, value=node.meta["val"])


def _inner_softmax(editor: Editor, node: Node) -> Any:
    """XNNPACK's own is exact enough and takes the last axis only."""
    value = tensor_value(node.args[0])
    if value is None or value.dim() == 0:
        return None
    last = argument(node, "dim") % value.dim() == value.dim() - 1
    return None if last else _softmax(editor, node)


def _integer_remainder(editor: Editor, node: Node) -> Any:
    """With the divisor's sign: `fmod` has the dividend's. The kernel is wrong for integers."""
    value = tensor_value(node)
    x, divisor = node.args[:2]
    if value is None or value.dtype.is_floating_point or isinstance(divisor, float):
        return None
    kind = "Tensor" if isinstance(divisor, Node) else "Scalar"
    rest = editor.call(node, getattr(aten.fmod, kind), x, divisor)
    signs = editor.call(node, aten.mul.Tensor, rest, divisor)
    wrong = editor.call(node, aten.lt.Scalar, signs, 0)
    moved = editor.call(node, aten.add.Tensor, rest, divisor)
    return editor.call(node, aten.where.self, wrong, moved, rest, value=node.meta["val"])


def _prelu(editor: Editor, node: Node) -> Any:
    """XNNPACK's lowering takes images only, and stops at anything else."""
    x: Any = node.args[0]
    value = tensor_value(x)
    if value is None or value.dim() in (0, 1, 4):
        return None
    shape = [1, -1, *([1] * (value.dim() - 2))]
    slope = editor.call(node, aten.view_copy.default, node.args[1], shape)
    scaled = editor.call(node, aten.mul.Tensor, x, slope)
    positive = editor.call(node, aten.gt.Scalar, x, 0)
    return editor.call(node, aten.where.self, positive, x, scaled, value=node.meta["val"])


def _tanh_gelu(editor: Editor, node: Node) -> Any:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as torch.nn.GELU has it."""
    if argument(node, "approximate") != "tanh":
        return None
    x: Any = node.args[0]
    cube = editor.call(node, aten.mul.Tensor, editor.call(node, aten.mul.Tensor, x, x), x)
    bent = editor.call(node, aten.add.Tensor, x, editor.call(node, aten.mul.Tensor, cube, 0.044715))
    inner = editor.call(node, aten.mul.Tensor, bent, math.sqrt(2 / math.pi))
    curve = editor.call(node, aten.tanh.default, inner)
    half = editor.call(node, aten.mul.Tensor, x, 0.5)
    factor = editor.call(node, aten.add.Tensor, curve, 1.0)
    return editor.call(node, aten.mul.Tensor, half, factor, value=node.meta["val"])
