"""Run the model where a traced program's assumptions on sizes fail.

For dims with a step torch.export does not compare its guards with the range (seen with torch
2.14): a branch on `size == 22` is frozen without a word. Many such guards are harmless (they ask
whether a size is 1), so what decides is what the model computes at those sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .guards import broken_checks
from .signature import Dim

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["demand_same_results"]

_TRIALS = 8


def demand_same_results(
    module: Any,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    program: ExportedProgram,
    asserting: ExportedProgram,
    dims: Sequence[Mapping[int, Dim]],
) -> None:
    """Compare `program` with the module at sizes where an assertion of `asserting` fails.

    Args:
        call: the example's args and kwargs; `dims` are the free ones of each of its leaves.
        asserting: the same program with assertions in place of guards.

    Raises:
        Broken: they differ there.
    """
    leaves, tree = pytree.tree_flatten(call)
    traced = program.module(check_guards=False)
    for broken in broken_checks(asserting, dims)[:_TRIALS]:
        sized = [
            _resized(leaf, {axis: broken.at.get(dim.name) for axis, dim in found.items()})
            for leaf, found in zip(leaves, dims, strict=True)
        ]
        if not _agree(module, traced, sized, tree):
            raise broken


def _resized(leaf: Any, sizes: Mapping[int, int | None]) -> Any:
    for axis, size in sizes.items():
        if size is not None:
            leaf = leaf.index_select(axis, torch.arange(size) % leaf.shape[axis])
    return leaf


def _agree(module: Any, traced: Any, leaves: Sequence[Any], tree: pytree.TreeSpec) -> bool:
    results = []
    for function in (module, traced):
        copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in leaves]
        args, kwargs = pytree.tree_unflatten(copies, tree)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                results.append(pytree.tree_leaves(function(*args, **kwargs)))
        except Exception:  # noqa: BLE001 - one that does not run at this size agrees with nothing
            return False
    return len(results[0]) == len(results[1]) and all(
        _close(a, b) for a, b in zip(*results, strict=True)
    )


def _close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    scale = float(a.abs().max()) if a.numel() and a.is_floating_point() else 0.0
    return torch.allclose(a, b, rtol=1e-2, atol=1e-3 * scale, equal_nan=True)
