"""Runs a function of an ML Program, operation by operation."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from ....errors import InputFileError, UnverifiableError
from .axes import bounded
from .call import Call, Unknown, fits, refuse
from .parts import names_read
from .program import Block, Constant, Function, Operation, Port
from .state import State
from .table import OPERATORS
from .types import StateType, TensorType

__all__ = ["run_function"]

Values = MutableMapping[str, Any]

_CONTRADICTIONS = (
    *(RuntimeError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError),
)
_MOST = 5_000_000
"""Operations of one run, loops included, after which it is taken for one that never ends."""


@torch.no_grad()
def run_function(
    function: Function, inputs: Mapping[str, Any], accumulate: torch.dtype = torch.float32
) -> dict[str, Any]:
    """Outputs of `function` by name.

    Args:
        function: from `read_program`.
        inputs: a tensor of the declared dtype and shape per input; a `State` per state.
        accumulate: how sums of float16 products are kept: float32, or float16.

    Raises:
        UnverifiableError: an operator, or an edge of one, whose result is not documented.
        InputFileError: the program contradicts itself, or takes something else than `inputs`.
    """
    values: Values = {port.name: _given(port, inputs) for port in function.inputs}
    runner = _Runner(function.opset, accumulate)
    return dict(zip(function.block.outputs, runner.block(function.block, values), strict=True))


def _given(port: Port, inputs: Mapping[str, Any]) -> Any:
    """What is fed to one input, of the type that the program declares."""
    value = inputs.get(port.name)
    is_state = isinstance(port.type, StateType)
    if is_state != isinstance(value, State) or value is None or not fits(value, port.type):
        what = "nothing" if value is None else _told(value)
        raise InputFileError(
            f"the ML Program is damaged: its input {port.name} is declared {port.type}, and its "
            f"description leads to {what}",
            hint="export the model again",
        )
    return value


class _Runner:
    def __init__(self, opset: int, accumulate: torch.dtype) -> None:
        self._opset = opset
        self._accumulate = accumulate
        self._done = 0

    def block(self, block: Block, values: Values) -> tuple[Any, ...]:
        """Outputs of `block`; `values` gains and loses what it computes on the way."""
        last = _last_uses(block)
        for index, operation in enumerate(block.operations):
            self._operation(operation, values)
            for name in last.get(index, ()):
                values.pop(name, None)
        return tuple(_found(values, name) for name in block.outputs)

    def _operation(self, operation: Operation, values: Values) -> None:
        operator = OPERATORS.get(operation.kind)
        name = operation.outputs[0].name if operation.outputs else operation.name
        if operator is None:
            refuse(operation.kind, name, "the operator is not implemented")
        self._done += 1
        if self._done > _MOST:
            refuse(operation.kind, name, f"it comes after more than {_MOST} operations")

        def run_block(index: int, arguments: Sequence[Any]) -> tuple[Any, ...]:
            inner = operation.blocks[index]
            names = [port.name for port in inner.inputs]
            own = dict(zip(names, arguments, strict=True))
            return self.block(inner, ChainMap(own, values))

        arguments = {
            key: tuple(
                item.value if isinstance(item, Constant) else _found(values, item.text)
                for item in items
            )
            for key, items in operation.inputs.items()
        }
        call = Call(operation, arguments, self._opset, self._accumulate, run_block)
        if operation.kind != "const":
            for port in operation.outputs:
                bounded(call, _declared(port))
        try:
            result = operator(call)
        except (InputFileError, UnverifiableError):
            raise
        except _CONTRADICTIONS as error:
            raise call.damaged(f"torch refuses its arguments ({error})") from error
        results = result if isinstance(result, tuple) else (result,)
        if call.unread:
            call.refuse(f"the argument {call.unread[0]} is not known")
        if len(results) < len(operation.outputs):
            raise call.damaged(f"it has {len(operation.outputs)} outputs, not {len(results)}")
        for port, value in zip(operation.outputs, results, strict=False):
            if not fits(value, port.type):
                raise call.damaged(
                    f"{port.name} is declared {port.type} and comes to {_told(value)}"
                )
            values[port.name] = value


def _found(values: Mapping[str, Any], name: str) -> Any:
    try:
        found = values[name]
    except KeyError:
        raise InputFileError(
            f"the ML Program is damaged: nothing computes {name}", hint="export the model again"
        ) from None
    if isinstance(found, Unknown):
        found.refuse()
    return found


def _declared(port: Port) -> list[int]:
    """Sizes that stand in the file."""
    found = port.type.shape if isinstance(port.type, TensorType) else None
    return [size for size in found or () if size is not None]


def _told(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _last_uses(block: Block) -> dict[int, list[str]]:
    """For each operation the values of this block that nothing needs after it."""
    last: dict[str, int] = {}
    for index, operation in enumerate(block.operations):
        last.update((port.name, index) for port in operation.outputs)
        last.update((name, index) for name in names_read(operation) if name in last)
    for name in block.outputs:
        last.pop(name, None)
    ends: dict[int, list[str]] = {}
    for name, index in last.items():
        ends.setdefault(index, []).append(name)
    return ends
