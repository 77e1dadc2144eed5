"""Where torchlib's translation of an operator is wrong or missing: ours, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["custom_translations", "refusal"]


@cache
def custom_translations() -> dict[Any, Callable[..., Any]]:
    """Translations that take precedence over torchlib's, by ATen operator."""
    import torch

    aten = torch.ops.aten
    return {aten.reshape.default: _reshape}


def refusal(node: Node) -> str:
    """Why a node would be translated wrongly; empty if nothing is known against it."""
    return ""


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
