"""Which tensors of a freshly built module came out of a random generator.

A value that is drawn while a module is built, and that no checkpoint holds (a
non-persistent buffer, a plain attribute), differs from the one the model was
trained with. `RandomTracker` follows random values through the operators, so
that only modules that keep one are looked at more closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["RandomTracker", "redrawn"]

_OVERWRITING = (torch.ops.aten.zero_.default, torch.ops.aten.fill_.Scalar)


class RandomTracker(TorchDispatchMode):
    """Records the storages that hold random values, or values computed from them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._random: set[int] = set()

    def holds(self, tensor: torch.Tensor) -> bool:
        return _storage(tensor) in self._random

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        random = torch.Tag.nondeterministic_seeded in func.tags or any(map(self.holds, inputs))
        if func in _OVERWRITING:
            random = False
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                (self._random.add if random else self._random.discard)(_storage(leaf))
        return result


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def redrawn(
    module: nn.Module, tracker: RandomTracker, rebuild: Callable[[], nn.Module]
) -> list[str]:
    """Names of tensors in `module` that another seed gives another value.

    Args:
        module: built under `tracker`, then given the file's weights.
        rebuild: builds it again under another seed; called only if a tensor that
            the tracker saw to be random is left.
    """
    suspects = {name: value for name, value in _held(module) if tracker.holds(value)}
    if not suspects:
        return []
    again = dict(_held(rebuild()))
    return [
        name
        for name, value in suspects.items()
        if name not in again or not torch.equal(value, again[name])
    ]


def _held(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and plain tensor attributes by qualified name."""
    for owner, child in module.named_modules():
        prefix = f"{owner}." if owner else ""
        for store in (child._parameters, child._buffers, vars(child)):
            for name, value in store.items():
                if isinstance(value, torch.Tensor) and not _recomputed(child, name):
                    yield prefix + name, value


def _recomputed(module: nn.Module, name: str) -> bool:
    """Hooks of weight_norm, spectral_norm and prune compute `name` anew at every call."""
    return any(f"{name}_{source}" in module._parameters for source in ("v", "orig"))
