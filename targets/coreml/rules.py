"""How operators that coremltools lacks, or takes wrongly, are written in ones that it takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from ...exporter.decompositions import decompose
from ...exporter.nodes import Editor, argument, tensor_value
from ...exporter.rules.common import Rule
from ...exporter.rules.merging import SHARED_TABLES, merged
from ...exporter.rules.scattering import SCATTER_RULES
from ...exporter.rules.special_functions import SPECIAL_RULES
from ...exporter.rules.traced import NotRewritten, traced
from .choices import CHOICE_RULES
from .creation import CREATION_RULES, filled, sizes_of
from .masks import MASK_RULES
from .ranks import with_an_axis

__all__ = ["ANY_AND_ALL", "RULES", "otherwise"]

aten = torch.ops.aten


ANY_AND_ALL = (
    *(aten.any.default, aten.any.dim, aten.any.dims),
    *(aten.all.default, aten.all.dim, aten.all.dims),
)


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


def _of_booleans(target: Any) -> Rule:
    """Bits of booleans are what logic says; Core ML has no bit operators on integers."""

    def rule(editor: Editor, node: Node) -> Any:
        value = node.meta["val"]
        if value.dtype != torch.bool or not all(isinstance(arg, Node) for arg in node.args):
            return None
        return editor.call(node, target, *node.args, value=value)

    return rule


def _rsqrt(editor: Editor, node: Node) -> Any:
    """MIL's `rsqrt` adds 1e-12 to what it takes the root of."""
    value = node.meta["val"]
    root = editor.call(node, aten.sqrt.default, node.args[0])
    one = filled(editor, node, [], 1, value.dtype)
    return editor.call(node, aten.div.Tensor, one, root, value=value)


def _clamp(editor: Editor, node: Node) -> Any:
    """The upper bound wins, as in PyTorch."""
    value, x = node.meta["val"], node.args[0]
    for name, target in (("min", aten.maximum.default), ("max", aten.minimum.default)):
        bound = argument(node, name)
        if bound is None:
            continue
        if not isinstance(bound, Node):
            bound = filled(editor, node, [], bound, value.dtype)
        elif bound.meta["val"].dtype != value.dtype:
            bound = editor.call(node, aten._to_copy.default, bound, dtype=value.dtype)
        x = editor.call(node, target, x, bound)
    return x


def _copy(editor: Editor, node: Node) -> Any:
    """What was written over a tensor, in that tensor's shape and dtype."""
    value, source = node.meta["val"], node.args[1]
    if not isinstance(source, Node):
        return None
    if source.meta["val"].dtype != value.dtype:
        source = editor.call(node, aten._to_copy.default, source, dtype=value.dtype)
    if source.meta["val"].shape != value.shape:
        sizes = sizes_of(editor, node, node.args[0])
        source = editor.call(node, aten.expand.default, source, sizes, value=value)
    return source


def _without_axes(editor: Editor, node: Node) -> Any:
    """A reshape to no axes at all: MIL takes an empty shape for none."""
    value, x = node.meta["val"], tensor_value(node.args[0])
    if x is None or value.dim() or not x.dim():
        return None
    one = editor.call(node, aten.reshape.default, node.args[0], [1])
    return editor.call(node, aten.squeeze.dims, one, [0], value=value)


def _itself(_: Editor, node: Node) -> Any:
    """What squeezing, or the logarithm of a sum of exponentials, makes of a number."""
    x = tensor_value(node.args[0])
    same = x is not None and not x.dim() and x.dtype == node.meta["val"].dtype
    return node.args[0] if same else None


def _softplus(x: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    scaled = x * beta
    soft = torch.relu(scaled) + torch.log1p(torch.exp(-scaled.abs()))
    return torch.where(scaled > threshold, x, soft / beta)


def _group_norm(
    x: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    _cudnn: bool,
) -> torch.Tensor:
    """coremltools does not take one of a dynamic batch."""
    grouped = x.reshape(x.shape[0], groups, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    x = (centred / torch.sqrt(variance + eps)).reshape(x.shape)
    row = [1, -1] + [1] * (x.dim() - 2)
    if weight is not None:
        x = x * weight.reshape(row)
    return x if bias is None else x + bias.reshape(row)


def _gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """coremltools reads no `approximate`; torch's own decomposition asks about the sizes."""
    if approximate != "tanh":
        raise NotRewritten
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


def _whole_division(editor: Editor, node: Node) -> Any:
    """coremltools gives float32, also of integers; beyond 2^24 that is not exact."""
    value = node.meta["val"]
    if value.is_floating_point():
        return None
    mode = node.kwargs.get("rounding_mode", "floor")
    wide = [
        editor.call(node, aten._to_copy.default, item, dtype=torch.float32)
        if isinstance(item, Node)
        else item
        for item in node.args
    ]
    if not isinstance(wide[0], Node):
        return None
    quotient = editor.call(node, aten.div.Tensor_mode, *wide, rounding_mode=mode)
    return editor.call(node, aten._to_copy.default, quotient, dtype=value.dtype, value=value)


def _of_numbers(editor: Editor, node: Node) -> Any:
    """`any` and `all` of numbers: coremltools looks at the largest and the least of them."""
    x = tensor_value(node.args[0])
    if x is None or x.dtype == torch.bool:
        return None
    target: Any = node.target
    hit = editor.call(node, aten.ne.Scalar, node.args[0], 0)
    return editor.call(node, target, hit, *node.args[1:], value=node.meta["val"], **node.kwargs)


_LOGIC = {
    aten.logical_and.default: (aten.bitwise_and.Tensor, aten.__and__.Tensor),
    aten.logical_or.default: (aten.bitwise_or.Tensor, aten.__or__.Tensor),
    aten.logical_xor.default: (aten.bitwise_xor.Tensor, aten.__xor__.Tensor),
    aten.logical_not.default: (aten.bitwise_not.default,),
}


RULES = merged(
    SPECIAL_RULES,  # before the shared ones: their signbit divides by `reciprocal`
    SCATTER_RULES,  # before the shared mean, for indices of any size
    *SHARED_TABLES,
    CREATION_RULES,
    CHOICE_RULES,
    {aten.trunc.default: _trunc, aten.rsqrt.default: _rsqrt},
    {aten.copy.default: _copy, aten.reshape.default: _without_axes},
    dict.fromkeys((aten.squeeze.dims, aten.logsumexp.default), _itself),
    dict.fromkeys((aten.clamp.default, aten.clamp.Tensor), _clamp),
    {aten.gelu.default: traced(_gelu)},
    MASK_RULES,
    dict.fromkeys(ANY_AND_ALL, _of_numbers),
    {aten.softplus.default: traced(_softplus), aten.floor_divide.default: _whole_division},
    dict.fromkeys((aten.div.Tensor_mode, aten.div.Scalar_mode), _whole_division),
    {aten.group_norm.default: traced(_group_norm)},
    {bits: _of_booleans(logic) for logic, names in _LOGIC.items() for bits in names},
)
