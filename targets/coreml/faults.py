"""Operators that the installed coremltools translates wrongly, or not for all arguments.

What a translation refuses shows when it is tried (`attempts.py`); what it gets wrong is told here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import argument, tensor_value
from ...exporter.rules.convolutions import CONVOLUTION_RULES, is_cut_wrongly, is_unbatched
from ...exporter.rules.nearest import NEAREST_RULES, has_whole_factors
from ...exporter.rules.scattering import is_at_mask
from .choices import is_uneven
from .creation import CREATION_RULES
from .ranks import is_without_axes
from .rules import ANY_AND_ALL

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["fault"]

aten = torch.ops.aten

Predicate = Callable[["Node"], bool]


def _always(_node: Node) -> bool:
    return True


def _is_float(node: Node) -> bool:
    value = tensor_value(node)
    return value is not None and value.is_floating_point()


def _is_whole(node: Node) -> bool:
    value = tensor_value(node)
    return value is not None and not value.is_floating_point()


def _counts_booleans(node: Node) -> bool:
    value = tensor_value(node.args[0])
    return value is not None and value.dtype == torch.bool


def _is_no_plain_fill(node: Node) -> bool:
    shape: Any = node.args[0]
    return not len(shape) or "dtype" not in node.kwargs


def _grows(node: Node) -> bool:
    """Whether the result has other axes than its first operand, or other sizes that are known."""
    value, x = tensor_value(node), tensor_value(node.args[0])
    if value is None or x is None:
        return False
    if x.dim() != value.dim():
        return True
    pairs = zip(x.shape, value.shape, strict=True)
    return any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _loses_all_axes(node: Node) -> bool:
    value, x = tensor_value(node), tensor_value(node.args[0])
    return value is not None and x is not None and not value.dim() and x.dim() > 0


def _is_rare_convolution(node: Node) -> bool:
    target: Any = node.target
    names = {entry.name for entry in target._schema.arguments}
    return is_unbatched(node) or ("output_padding" in names and is_cut_wrongly(node))


def _has_odd_softplus(node: Node) -> bool:
    return (argument(node, "beta"), argument(node, "threshold")) != (1, 20)


def _is_one_sided(node: Node) -> bool:
    return argument(node, "min") is None or argument(node, "max") is None


def _each(predicate: Predicate, *targets: Any) -> dict[Any, Predicate]:
    return dict.fromkeys(targets, predicate)


_FAULTS: dict[Any, Predicate] = {
    # Numbers as tensors: dtypes are left out, and there is no rank 0.
    **_each(_always, *CREATION_RULES),
    aten.full.default: _is_no_plain_fill,
    aten.scalar_tensor.default: lambda node: bool(node.kwargs),
    **_each(
        lambda node: bool(node.kwargs.get("dtype")),
        *(aten.arange.default, aten.arange.start, aten.arange.start_step, aten.linspace.default),
    ),
    # expm1 as exp(x) - 1 and log1p as log(1 + x) have no digits near zero; `inverse` and `rsqrt`
    # add an epsilon by their documented defaults; halves are rounded as no documentation tells;
    # remainders follow a division that may round up; NaN and infinities are moved by `non_zero`
    # and `scatter_nd`; acosh and asinh stand for operators that MIL has not.
    **_each(
        _is_float,
        *(aten.expm1.default, aten.log1p.default, aten.reciprocal.default, aten.rsqrt.default),
        *(aten.remainder.Tensor, aten.remainder.Scalar, aten.nan_to_num.default),
        *(aten.acosh.default, aten.asinh.default, aten.round.default),
    ),
    aten.logcumsumexp.default: _always,  # as log(cumsum(exp(x))), which overflows
    aten.softplus.default: _has_odd_softplus,  # the threshold is left out
    # A query that may attend to nothing gets NaN; what must not be seen is scored -30000.
    aten.scaled_dot_product_attention.default: lambda node: (
        argument(node, "attn_mask") is not None or bool(argument(node, "is_causal"))
    ),
    # Infinity times zero, running statistics left out, a division by zero.
    **_each(_is_float, aten.triu.default, aten.tril.default, aten.atan2.default),
    aten.instance_norm.default: lambda node: not argument(node, "use_input_stats"),
    # RMS norms are scaled before epsilon is added, which then counts for more.
    **_each(_always, aten.rms_norm.default, aten._fused_rms_norm.default),
    # No correction given means 1, and coremltools reads 0.
    **_each(
        lambda node: node.kwargs.get("correction") is None,
        *(aten.var.correction, aten.std.correction),
    ),
    # Integers and booleans: written as float32, or taken for each other.
    **_each(lambda node: not _counts_booleans(node), *ANY_AND_ALL),
    **_each(_is_whole, aten.div.Tensor_mode, aten.div.Scalar_mode),
    **_each(_counts_booleans, aten.sum.default, aten.sum.dim_IntList),
    aten.floor_divide.default: _is_whole,
    **_each(_always, aten.bitwise_and.Tensor, aten.bitwise_not.default),
    aten.linalg_vector_norm.default: lambda node: argument(node, "ord") == 0,
    # A tensor's lower bound wins over its upper one; one-sided ones cut at float32's largest value.
    aten.clamp.Tensor: _always,
    aten.clamp.default: _is_one_sided,
    # Shapes: what is filled or chosen is not broadcast, an empty shape is taken for none, the
    # diagonal keeps an axis too many, one image is written as a batch.
    **_each(_grows, aten.masked_fill.Scalar, aten.masked_fill.Tensor),
    aten.where.self: is_uneven,
    aten.reshape.default: _loses_all_axes,
    **_each(_always, aten.diagonal.default, aten.diagonal_copy.default, aten.copy.default),
    **_each(_is_rare_convolution, *CONVOLUTION_RULES),
    # Borders: the strings "same" and "valid" mean others in MIL, which has no circular ones;
    # whether a mean that hangs over counts its padding is not documented.
    **_each(_always, aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding),
    aten.pad.default: lambda node: argument(node, "mode") == "circular",
    **_each(
        lambda node: bool(argument(node, "ceil_mode")),
        *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    ),
    # Which pixel a broken factor picks is not documented; antialiasing is left out.
    **_each(lambda node: not has_whole_factors(node), *NEAREST_RULES),
    **_each(_always, aten._upsample_bilinear2d_aa.default, aten._upsample_bilinear2d_aa.vec),
}


def fault(node: Node) -> bool:
    """Whether coremltools' translation of a node must not be used."""
    predicate = _FAULTS.get(node.target)
    if predicate is not None and predicate(node):
        return True
    return is_at_mask(node) or is_without_axes(node)  # of a mask, as many values are asked for
