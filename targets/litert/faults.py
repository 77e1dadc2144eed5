"""Operators that litert_torch or LiteRT's kernels are known to get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["fault"]


def fault(node: Node) -> str:
    """Why a captured node would be converted wrongly; empty if it would not."""
    return ""
