"""Let `torch.linspace` keep a dynamic number of steps.

ATen declares the count a plain number, so tracing would fix it to the example's
(seen with torch 2.14). While capturing, such a call becomes arithmetic on
`arange`, in the order of ATen's kernel: up from the start in the first half,
down from the end in the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["linspace_of_any_length"]


@contextmanager
def linspace_of_any_length() -> Iterator[None]:
    """While active, `linspace` of a symbolic length, between two numbers, is decomposed."""
    with _Decomposing():
        yield


class _Decomposing(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.linspace:
            found = _linspace(*args, **kwargs)
            if found is not None:
                return found
        return func(*args, **kwargs)


def _linspace(
    start: Any = None, end: Any = None, steps: Any = None, *, dtype: Any = None, **rest: Any
) -> torch.Tensor | None:
    """None if it is not for us: a fixed length, ends that are tensors, another dtype."""
    kind = dtype or torch.get_default_dtype()
    numbers = all(isinstance(item, (int, float)) for item in (start, end))
    if not isinstance(steps, torch.SymInt) or not numbers or rest.get("out") is not None:
        return None
    if kind not in (torch.float32, torch.float64):
        return None
    index = torch.arange(steps, device=rest.get("device"))
    last = index[-1:].clamp(min=1)  # of a single step, which is `start`, no division by 0
    first_half = 2 * index + 1 <= last
    step = torch.full((1,), float(end) - float(start), dtype=kind, device=rest.get("device"))
    step = step / last.to(kind)
    up = start + step * index.to(kind)
    down = end - step * (last - index).to(kind)
    return torch.where(first_half, up, down)
