"""Tensors that outlive a prediction: read_state, write_state."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ....errors import InputFileError
from .axes import AFFORDABLE
from .call import Call, Operator, fits
from .program import Function
from .types import STORAGE, StateType, TensorType

__all__ = ["OPERATORS", "State", "fresh_states"]


class State:
    """One state of a model: what `run_function` takes for an input of type state.

    Calls that are given the same object see what earlier ones wrote.
    """

    def __init__(self, value: torch.Tensor, declared: TensorType) -> None:
        self.value = value
        self.declared = declared


def fresh_states(function: Function) -> Mapping[str, State]:
    """A new state, all zeros as Core ML makes it, for each state that `function` takes.

    Raises:
        InputFileError: a state is declared without a fixed shape, or with an absurd one.
    """
    return {
        port.name: _zeros(port.name, port.type.wrapped)
        for port in function.inputs
        if isinstance(port.type, StateType)
    }


def _zeros(name: str, declared: TensorType) -> State:
    shape = tuple(size for size in declared.shape or () if size is not None)
    count = 1
    for size in shape:
        count *= size
    fixed = declared.shape is not None and None not in declared.shape
    if not fixed or declared.dtype not in STORAGE or count > AFFORDABLE:
        raise InputFileError(
            f"the ML Program is damaged: the state {name} is declared {declared}",
            hint="export the model again",
        )
    return State(torch.zeros(shape, dtype=STORAGE[declared.dtype]), declared)


def _state(call: Call) -> State:
    found = call.value("input")
    if not isinstance(found, State):
        raise call.damaged("input is no state")
    return found


def _read_state(call: Call) -> torch.Tensor:
    return _state(call).value.clone()


def _write_state(call: Call) -> tuple[()]:
    state, data = _state(call), call.tensor("data")
    if not fits(data, state.declared):
        raise call.damaged(f"{list(data.shape)} is written to a state of {state.declared}")
    state.value = data.clone()
    return ()


OPERATORS: dict[str, Operator] = {"read_state": _read_state, "write_state": _write_state}
