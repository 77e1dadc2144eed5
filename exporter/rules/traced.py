"""Rules written as torch functions: what they call takes the place of a node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from ..decompositions import inlined
from ..nodes import Editor
from .common import Rule

__all__ = ["NotRewritten", "traced"]


class NotRewritten(Exception):  # noqa: N818 - not an error: the node stays as it is
    """The function cannot stand for the operator with these arguments."""


def traced(function: Callable[..., Any]) -> Rule:
    """A rule that puts the operators `function` calls in the place of a node.

    `function` takes the operator's arguments in the order of its schema, all of them, by position.
    It returns a tensor, or a tuple with one entry per result: None for a result that it does not
    compute, and then the rule helps only where that one is not used. It may raise `NotRewritten`.
    A result of another dtype or shape than the operator's is never used.
    """
    return partial(_rewrite, function)


def _rewrite(function: Callable[..., Any], editor: Editor, node: Node) -> Any:
    target: Any = node.target
    entries = target._schema.arguments

    def bound(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip((entry.name for entry in entries), args, strict=False)) | kwargs
        return function(*(given.get(entry.name, entry.default_value) for entry in entries))

    value = inlined(editor, node, bound)
    if value is None:
        return None
    wanted = node.meta["val"]
    if isinstance(wanted, torch.Tensor):
        return value if _alike(value, wanted) else None
    used = {user.args[1] for user in node.users}
    if not all(_alike(value[index], wanted[index]) for index in used):
        return None
    return value


def _alike(found: Any, wanted: torch.Tensor) -> bool:
    if not isinstance(found, Node):
        return False
    value = found.meta["val"]
    if value.dtype != wanted.dtype or value.dim() != wanted.dim():
        return False
    sizes = zip(value.shape, wanted.shape, strict=True)
    return all(a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
