"""Where torchlib's translation of an operator is wrong or missing: ours, or a refusal.

Each entry was found by comparing the written file with eager on ONNX Runtime
(tests/targets/onnx/test_operators.py); seen with torch 2.14 and onnxscript 0.7.2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from .division import divide_rounded, floor_divide, remainder
from .layers import attention, recurrent
from .resize import antialiased, interpolated

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["custom_translations", "fault"]


@cache
def custom_translations() -> dict[Any, Callable[..., Any]]:
    """Translations that take precedence over torchlib's, by ATen operator."""
    import torch
    from onnxscript.function_libs.torch_lib.ops import nn as torchlib

    aten = torch.ops.aten
    nearest = interpolated("nearest", torchlib.aten_upsample_nearestnd_vec)
    return {
        aten.upsample_nearest1d.vec: nearest,
        aten.upsample_nearest2d.vec: nearest,
        aten.upsample_nearest3d.vec: nearest,
        aten.upsample_bilinear2d.vec: interpolated(
            "bilinear", torchlib.aten_upsample_bilinear2d_vec
        ),
        aten.upsample_trilinear3d.vec: interpolated(
            "bilinear", torchlib.aten_upsample_trilinear3d_vec
        ),
        aten.upsample_bicubic2d.vec: interpolated("bicubic", torchlib.aten_upsample_bicubic2d_vec),
        aten.reshape.default: _reshape,
        aten.log_sigmoid.default: _log_sigmoid,
        aten.selu.default: _selu,
        aten.div.Tensor_mode: divide_rounded,
        aten.div.Scalar_mode: divide_rounded,
        aten.floor_divide.default: floor_divide,
        aten.floor_divide.Scalar: floor_divide,
        aten.remainder.Tensor: remainder,
        aten.remainder.Scalar: remainder,
        aten.remainder.Scalar_Tensor: remainder,
        aten.scaled_dot_product_attention.default: attention,
        aten.rnn_tanh.input: recurrent("Tanh"),
        aten.rnn_relu.input: recurrent("Relu"),
        aten._upsample_bilinear2d_aa.default: antialiased(aten._upsample_bilinear2d_aa.default),
        aten._upsample_bicubic2d_aa.default: antialiased(aten._upsample_bicubic2d_aa.default),
    }


def fault(node: Node) -> str:
    """Why translating the node would give wrong results; empty if nothing is known against it."""
    check = _faults().get(node.target)
    return check(node) if check is not None else ""


@cache
def _faults() -> dict[Any, Callable[[Node], str]]:
    import torch

    aten = torch.ops.aten
    resizes = (
        *(aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d),
        *(aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d),
        aten.upsample_bicubic2d,
    )
    return {
        aten.avg_pool2d.default: _divisor,
        aten.avg_pool3d.default: _divisor,
        aten.lstm.input: _projection,
        aten.scaled_dot_product_attention.default: _attention_dropout,
        aten.scatter_reduce.two: _scatter_mean,
        aten.where.self: _where_bool,
        aten.where.ScalarSelf: _where_bool,
        aten.where.ScalarOther: _where_bool,
        aten.where.Scalar: _where_bool,
        aten.signbit.default: _signbit,
        aten.atan2.default: lambda node: "zero over a negative number comes to -pi",
        aten.amin.default: _without_axes,
        aten.amax.default: _without_axes,
        aten.neg.default: _neg_unsigned,
        aten.relu.default: _relu_integer,
        aten.aminmax.default: _aminmax_whole,
        aten.index.Tensor: _narrow_index,
        aten.index_put.default: _narrow_index,
        aten._unsafe_index.Tensor: _narrow_index,
        aten._unsafe_index_put.default: _narrow_index,
        aten._upsample_bilinear2d_aa.default: _antialiased_dynamic,
        aten._upsample_bicubic2d_aa.default: _antialiased_dynamic,
        **{packet.default: _scale_ignored for packet in resizes},
    }


def _without_axes(node: Node) -> str:
    given = len(node.args) > 1 or "dim" in node.kwargs
    return "" if given else "the axes are not given"


def _divisor(node: Node) -> str:
    from ...exporter.nodes import argument

    return "" if argument(node, "divisor_override") is None else "divisor_override is ignored"


def _projection(node: Node) -> str:
    params: Any = node.args[2]
    directions = 2 if node.args[7] else 1
    per_direction = len(params) // (int(node.args[4]) * directions)  # type: ignore[arg-type]
    return "proj_size has no ONNX equivalent" if per_direction in (3, 5) else ""


def _attention_dropout(node: Node) -> str:
    return "attention with dropout" if _given(node, ["dropout_p"])[0] else ""


def _scatter_mean(node: Node) -> str:
    return "the mean is not divided" if _given(node, ["reduce"])[0] == "mean" else ""


def _narrow_index(node: Node) -> str:
    from ...exporter.nodes import tensor_value

    indices: Any = node.args[1]
    kinds = {str(value.dtype) for item in indices if (value := tensor_value(item)) is not None}
    return "" if kinds <= {"torch.int64", "torch.bool"} else "ONNX indexes with int64 only"


def _where_bool(node: Node) -> str:
    return "ONNX Runtime has no choice between booleans" if _result(node) == "torch.bool" else ""


def _signbit(node: Node) -> str:
    from ...exporter.nodes import tensor_value

    x = tensor_value(node.args[0])
    floats = x is not None and x.dtype.is_floating_point
    return "the sign of -0.0 is lost" if floats else ""


def _neg_unsigned(node: Node) -> str:
    unsigned = _result(node) in ("torch.uint8", "torch.uint16", "torch.uint32", "torch.uint64")
    return "ONNX negates signed numbers only" if unsigned else ""


def _relu_integer(node: Node) -> str:
    whole = "int" in _result(node)
    return "ONNX Runtime has no Relu on integers" if whole else ""


def _aminmax_whole(node: Node) -> str:
    return "minimum and maximum of all axes" if _given(node, ["dim"])[0] is None else ""


def _result(node: Node) -> str:
    """The dtype of a node's value, as text; empty if it is no tensor."""
    from ...exporter.nodes import tensor_value

    value = tensor_value(node)
    return "" if value is None else str(value.dtype)


def _scale_ignored(node: Node) -> str:
    """torchlib takes the size alone; torch samples by the scale where one is given."""
    from ...exporter.nodes import tensor_value

    target: Any = node.target
    scales = [a.name for a in target._schema.arguments if a.name.startswith("scales")]
    given = _given(node, scales)
    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or result is None or all(scale is None for scale in given):
        return ""
    for size, count, scale in zip(x.shape[2:], result.shape[2:], given, strict=True):
        if scale is not None and not (isinstance(size, int) and count == size * scale):
            return "the scale factor is ignored"
    return ""


def _antialiased_dynamic(node: Node) -> str:
    from ...exporter.nodes import tensor_value

    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or result is None or _is_plain(node):
        return ""
    static = all(isinstance(size, int) for size in (*x.shape[2:], *result.shape[2:]))
    return "" if static else "antialiased resizing by scale needs static sizes"


def _is_plain(node: Node) -> bool:
    aligned = _given(node, ["align_corners"])[0]
    return not aligned and _given(node, ["scales_h", "scales_w"]) == [None, None]


def _given(node: Node, names: list[str]) -> list[Any]:
    from ...exporter.nodes import argument

    return [argument(node, name) for name in names]


def _selu(self: Any) -> Any:
    """With its attributes: where they are left out TensorRT's parser has rounder ones."""
    from onnxscript import opset18 as op

    # The defaults of ONNX, https://onnx.ai/onnx/operators/onnx__Selu.html, which are torch's too.
    return op.Selu(self, alpha=1.6732631921768188, gamma=1.0507010221481323)


def _reshape(self: Any, shape: Any) -> Any:
    """torchlib leaves out `allowzero`, without which a size of 0 means "copy the input's"."""
    from onnxscript import opset18 as op

    if all(isinstance(size, int) for size in shape):
        return op.Reshape(self, op.Constant(value_ints=list(shape)), allowzero=1)
    parts = [
        op.Constant(value_ints=[size]) if isinstance(size, int) else op.Reshape(size, [1])
        for size in shape
    ]
    return op.Reshape(self, op.Concat(*parts, axis=0), allowzero=1)


def _log_sigmoid(self: Any) -> Any:
    """-softplus(-x); torchlib's log(sigmoid(x)) is -inf below about -104."""
    from onnxscript import opset18 as op

    return op.Neg(op.Softplus(op.Neg(self)))
