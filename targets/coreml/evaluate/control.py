"""Control flow: cond, while_loop."""

from __future__ import annotations

from typing import Any

import torch

from .call import Call, Operator
from .lists import OPERATORS as _LISTS
from .state import OPERATORS as _STATE

__all__ = ["OPERATORS"]

_LONGEST = 100_000
"""Turns of one loop, after which it is taken for one that never ends."""


def _cond(call: Call) -> tuple[Any, ...]:
    chosen = call.block(0 if _truth(call, call.value("pred")) else 1)
    return _as_many(call, chosen, len(call.operation.outputs))


def _while_loop(call: Call) -> tuple[Any, ...]:
    values, turns = call.values("loop_vars"), 0
    while _truth(call, _as_many(call, call.block(0, values), 1)[0]):
        turns += 1
        if turns > _LONGEST:
            call.refuse(f"a loop of more than {_LONGEST} turns")
        values = _as_many(call, call.block(1, values), len(values))
    return values


def _truth(call: Call, value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.bool or value.numel() != 1:
        raise call.damaged("its condition is no single bool")
    return bool(value)


def _as_many(call: Call, values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    if len(values) != count:
        raise call.damaged(f"a block has {len(values)} outputs where {count} belong")
    return values


OPERATORS: dict[str, Operator] = {"cond": _cond, "while_loop": _while_loop, **_LISTS, **_STATE}
