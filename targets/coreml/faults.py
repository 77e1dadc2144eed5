"""Operators that the installed coremltools translates wrongly, or not for all arguments.

What a translation refuses shows when it is tried (`attempts.py`); what it gets wrong is told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .creation import CREATION_RULES
from .ranks import is_without_axes

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["fault"]

aten = torch.ops.aten

_COUNTING = (aten.arange.default, aten.arange.start, aten.arange.start_step)


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
    return target in CREATION_RULES or is_without_axes(node)
