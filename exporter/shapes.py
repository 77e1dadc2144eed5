"""Keeps what is known of a graph's sizes as it was: converters write to it.

A program's sizes live in torch's ShapeEnv, which all copies of the program share.
A compiler that asks "is the batch below 16?" leaves the answer there as a guard,
and the next target reads a dim of 1..16 as 1..15 (seen: AOTInductor, then ExecuTorch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .graph import Graph

__all__ = ["environments_of", "for_all_sizes", "shapes_kept", "sizes_kept"]

_T = TypeVar("_T")


def shapes_kept(graph: Graph) -> AbstractContextManager[None]:
    """While active the graph's sizes may be guarded and narrowed; afterwards they are as before."""
    return sizes_kept(environments_of(graph.program))


@contextmanager
def sizes_kept(environments: Sequence[Any]) -> Iterator[None]:
    """See `shapes_kept`; `environments` are from `environments_of`."""
    before = [_contents(environment) for environment in environments]
    try:
        yield
    finally:
        for environment, contents in zip(environments, before, strict=True):
            _restore(environment, contents)


def for_all_sizes(environments: Sequence[Any], compute: Callable[[], _T]) -> _T | None:
    """What `compute` returns; None if it holds for some sizes only.

    A question about a size that has several answers is answered by the size's example, and the
    answer is kept as a guard, or the size is fixed. Such an answer is undone.
    """
    if not environments:
        return compute()
    before = [_contents(environment) for environment in environments]
    result = None
    try:
        result = compute()
    finally:
        guessed = False
        for environment, contents in zip(environments, before, strict=True):
            if _has_learnt(environment, contents):
                guessed = True
                _restore(environment, contents)
    return None if guessed else result


def _has_learnt(environment: Any, before: dict[str, Any]) -> bool:
    """Whether there is a guard, or a fact about a size that was there before."""
    return len(environment.guards) > len(before["guards"]) or any(
        environment.var_to_range.get(size) != known
        or environment.replacements.get(size) != before["replacements"].get(size)
        for size, known in before["var_to_range"].items()
    )


def environments_of(program: ExportedProgram) -> list[Any]:
    """The ShapeEnvs of the program's symbolic sizes."""
    found: dict[int, Any] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                found[id(size.node.shape_env)] = size.node.shape_env
    return list(found.values())


def _contents(environment: Any) -> dict[str, Any]:
    """Copies of the lists, dicts and sets that the environment keeps its facts in."""
    return {
        name: value.copy()
        for name, value in vars(environment).items()
        if isinstance(value, (dict, list, set))
    }


def _restore(environment: Any, contents: dict[str, Any]) -> None:
    for name, value in contents.items():
        kept = getattr(environment, name)
        kept.clear()
        if isinstance(kept, list):
            kept.extend(value)
        else:
            kept.update(value)
    # Answers are cached, most by version: those on the narrowed sizes must not be given again.
    environment._update_version_counter()  # which notes how many facts there are
    environment._version_counter += 1
    environment._replacements_version_counter += 1
    for method in vars(type(environment)).values():
        if callable(clear := getattr(method, "cache_clear", None)):
            clear()
