"""How a target names what it cannot take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import ConversionError
from .base import Unsupported

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["cannot_express", "unsupported"]

_SHOWN = 5


def unsupported(node: Node, reason: str = "") -> Unsupported:
    """A node of a captured program as an operator, its module path and its `file:line`."""
    from ..exporter.graph import node_origin

    target: Any = node.target
    name = str(target.name()) if hasattr(target, "name") else str(target)
    origin = node_origin(node)
    return Unsupported(name, origin.module, origin.location, reason)


def cannot_express(
    runtime: str,
    operators: Iterable[Unsupported],
    hint: str = "rewrite that part of the model with other operators",
) -> ConversionError:
    """The error for operators that `runtime` (its display name) has no form for."""
    lines = list(dict.fromkeys(str(item) for item in operators))
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ConversionError(f"{runtime} cannot express {'; '.join(lines[:_SHOWN])}{more}", hint=hint)
