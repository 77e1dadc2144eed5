"""Operators that the installed coremltools translates wrongly, or not for all arguments.

What a translation refuses shows when it is tried (`attempts.py`); what it gets wrong is told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.convolutions import CONVOLUTION_RULES, is_cut_wrongly, is_unbatched
from ...exporter.nearest import NEAREST_RULES, has_whole_factors
from ...exporter.nodes import argument, tensor_value
from ...exporter.scattering import is_at_mask
from .choices import is_uneven
from .creation import CREATION_RULES
from .ranks import is_without_axes

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["fault"]

aten = torch.ops.aten

_VARIANCES = (aten.var.correction, aten.std.correction)
_COUNTING = (
    *(aten.arange.default, aten.arange.start, aten.arange.start_step),
    aten.linspace.default,
)


# expm1 as exp(x) - 1 and log1p as log(1 + x) have no digits near zero; `inverse` adds 1e-4 to what
# it inverts, by its documented default; halves are rounded as no documentation tells; remainders
# follow a division that may round up; NaN and infinities are moved by `non_zero` and `scatter_nd`;
# acosh and asinh stand for operators that MIL has not.
_LOOSE = {
    *(aten.expm1.default, aten.log1p.default, aten.reciprocal.default, aten.round.default),
    *(aten.remainder.Tensor, aten.remainder.Scalar, aten.nan_to_num.default),
    *(aten.acosh.default, aten.asinh.default, aten.rsqrt.default),
}


# The strings "same" and "valid" mean other borders in MIL; the diagonal keeps an axis too many;
# boolean bits are taken for integers; a tensor's lower bound wins over its upper one; RMS norms are
# scaled before epsilon is added, which then counts for more; antialiasing is left out.
_ALWAYS = {
    *(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding),
    *(aten.diagonal.default, aten.diagonal_copy.default),
    *(aten.bitwise_and.Tensor, aten.bitwise_not.default, aten.clamp.Tensor, aten.copy.default),
    *(aten.rms_norm.default, aten._fused_rms_norm.default),
    *(aten._upsample_bilinear2d_aa.default, aten._upsample_bilinear2d_aa.vec),
}


_AVERAGES = (aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)

_FILLS = (aten.masked_fill.Scalar, aten.masked_fill.Tensor)


def _hangs_over(node: Node) -> bool:
    """A mean in ceil mode counts padding where no documentation says whether it does."""
    return bool(argument(node, "ceil_mode"))


def _grows(x: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether `value` has other axes than `x`, or other sizes that are known."""
    if x.dim() != value.dim():
        return True
    pairs = zip(x.shape, value.shape, strict=True)
    return any(a != b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def fault(node: Node) -> bool:
    """Whether coremltools' translation of a node must not be used."""
    target: Any = node.target
    if target is aten.full.default:
        shape: Any = node.args[0]
        return not len(shape) or "dtype" not in node.kwargs
    if target is aten.scalar_tensor.default:
        return bool(node.kwargs)
    if target in _COUNTING:
        return bool(node.kwargs.get("dtype"))
    if target in _VARIANCES:  # no correction given means 1, and coremltools reads 0
        return node.kwargs.get("correction") is None
    if target in (aten.sum.default, aten.sum.dim_IntList):  # of booleans it is written as float32
        value = tensor_value(node.args[0])
        return value is not None and value.dtype == torch.bool
    if target is aten.logcumsumexp.default:  # as log(cumsum(exp(x))), which overflows
        return True
    if target in NEAREST_RULES:  # which pixel a broken factor picks is not documented
        return not has_whole_factors(node)
    if target in _AVERAGES:
        return _hangs_over(node)
    if target is aten.clamp.default:  # one-sided it is cut at float32's largest number too
        return argument(node, "min") is None or argument(node, "max") is None
    if target is aten.softplus.default:  # beta and threshold count for images only
        return (argument(node, "beta"), argument(node, "threshold")) != (1, 20)
    if target is aten.floor_divide.default:  # of integers it is written as float32
        value = tensor_value(node)
        return value is not None and not value.is_floating_point()
    if target in _FILLS:  # what is filled is not broadcast to its mask
        value, x = tensor_value(node), tensor_value(node.args[0])
        return value is not None and x is not None and _grows(x, value)
    if target is aten.linalg_vector_norm.default and argument(node, "ord") == 0:
        return True  # the count stays an integer
    if is_at_mask(node):  # as many values as are written are asked for
        return True
    if target is aten.reshape.default:  # an empty shape is taken for none
        value, x = tensor_value(node), tensor_value(node.args[0])
        return value is not None and x is not None and not value.dim() and x.dim() > 0
    if target in CONVOLUTION_RULES:  # of one image they are written as of a batch
        names = {a.name for a in target._schema.arguments}
        return is_unbatched(node) or ("output_padding" in names and is_cut_wrongly(node))
    if target is aten.pad.default:  # MIL has no such mode
        return bool(argument(node, "mode") == "circular")
    if target is aten.where.self and is_uneven(node):
        return True
    if target in _ALWAYS:
        return True
    if target in _LOOSE:
        value = tensor_value(node)
        return value is not None and value.is_floating_point()
    return target in CREATION_RULES or is_without_axes(node)
