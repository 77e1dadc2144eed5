"""Operators that ONNX has a form for and TensorRT's parser refuses.

Seen with TensorRT for RTX 1.7.1, whose parser is that of TensorRT 11: Det, DFT, Unique, the second
output of MaxPool, SoftmaxCrossEntropyLoss, the sequence operators, antialiased Resize, and
ScatterElements with a reduction, MaxPool with dilation, NonZero. They are written in operators
that it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import argument, tensor_value
from ...exporter.rules.scattering import is_at_mask
from ..onnx.dialect import Dialect
from ..onnx.target import OnnxTarget
from .rules import NO_BFLOAT16, TENSORRT_RULES, has_negative_index

if TYPE_CHECKING:
    from torch.fx import Node

    from ...exporter.graph import Graph
    from ..base import Unsupported

__all__ = ["TENSORRT_DIALECT", "find_unsupported"]

aten = torch.ops.aten

_POOLINGS = {aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default}
_REFUSED = {
    *(aten.linalg_det.default, aten._linalg_det.default, aten.det.default),
    *(aten.linalg_slogdet.default, aten._linalg_slogdet.default, aten.logdet.default),
    *(aten.max_pool1d_with_indices.default, aten.max_pool2d_with_indices.default),
    aten.max_pool3d_with_indices.default,
    *(aten.cross_entropy_loss.default, aten.nll_loss.default, aten.nll_loss_nd.default),
    *(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default),
    *(aten.atleast_1d.default, aten.atleast_2d.default, aten.atleast_3d.default),
    *(aten.atleast_1d.Sequence, aten.atleast_2d.Sequence, aten.atleast_3d.Sequence),
    *(aten.hstack.default, aten.vstack.default, aten.dstack.default),
    *(aten._upsample_bilinear2d_aa.default, aten._upsample_bicubic2d_aa.default),
    *(aten.scatter_add.default, aten.scatter_reduce.two, aten.scatter.reduce),
    *(aten.index_add.default, aten.index_reduce.default),
    *(aten.log_softmax.int, aten._log_softmax.default),
    *(aten.embedding_bag.default, aten.embedding_bag.padding_idx),
    *(aten._embedding_bag.default, aten._embedding_bag_forward_only.default),
}


def _refuses(node: Node) -> bool:
    return (
        node.target in _REFUSED
        or _is_dilated_pooling(node)
        or is_at_mask(node)
        or has_negative_index(node)
        or (node.target in NO_BFLOAT16 and _is_bfloat16(node))
    )


def _is_bfloat16(node: Node) -> bool:
    value = tensor_value(node)
    return value is not None and value.dtype == torch.bfloat16


def _is_dilated_pooling(node: Node) -> bool:
    if node.target not in _POOLINGS:
        return False
    dilation: Any = argument(node, "dilation")
    sizes = [dilation] if isinstance(dilation, int) else dilation
    return any(size != 1 for size in sizes)


TENSORRT_DIALECT = Dialect(_refuses, TENSORRT_RULES, fourier=True)
"""For `OnnxTarget.convert`."""


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators that ONNX cannot take; what TensorRT's builder refuses only a build tells.

    Raises:
        MissingRequirementError: the onnx packages are not installed.
    """
    return OnnxTarget().check(graph, dialect="tensorrt")
