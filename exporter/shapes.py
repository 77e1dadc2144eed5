"""Keeps what is known of a graph's sizes as it was: converters write to it.

A program's sizes live in torch's ShapeEnv, which all copies of the program share.
A compiler that asks "is the batch below 16?" leaves the answer there as a guard,
and the next target reads a dim of 1..16 as 1..15 (seen: AOTInductor, then ExecuTorch).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["shapes_kept"]


@contextmanager
def shapes_kept(graph: Graph) -> Iterator[None]:
    """While active the graph's sizes may be guarded and narrowed; afterwards they are as before."""
    environments = _environments(graph)
    before = [_contents(environment) for environment in environments]
    try:
        yield
    finally:
        for environment, contents in zip(environments, before, strict=True):
            _restore(environment, contents)


def _environments(graph: Graph) -> list[Any]:
    """The ShapeEnvs of the program's symbolic sizes."""
    found: dict[int, Any] = {}
    for node in graph.program.graph.nodes:
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
    # Answers are cached by version: those of the narrowed sizes must not be given again.
    environment._version_counter += 1
