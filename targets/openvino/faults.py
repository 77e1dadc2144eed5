"""What the frontend or the CPU plug-in computes wrongly, and what takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["fault", "repaired"]


def fault(node: Node) -> str:
    """Why the frontend's translation of this node is wrong; empty if it is not."""
    return ""


def repaired(program: ExportedProgram) -> None:
    """Rewrite in place what has a right form."""
