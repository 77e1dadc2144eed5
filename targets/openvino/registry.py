"""Which operators the installed frontend translates, asked of the frontend itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Unsupported
from ..unsupported import unsupported
from .faults import fault

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["untranslated"]


def untranslated(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a decomposed program that have no translation, or a wrong one."""
    return [
        unsupported(node, reason)
        for node in program.graph.nodes
        if node.op == "call_function" and (reason := fault(node))
    ]
