"""One operation at the moment it is computed: its arguments, read by the operator's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ....errors import InputFileError, UnverifiableError
from .program import Operation
from .types import ListType, StateType, TensorType, Type

__all__ = ["Call", "Operator", "Unknown", "fits", "refuse"]

Operator = Callable[["Call"], Any]
"""Computes one operator: a tensor, or a tuple of one value per output."""

_REQUIRED: Any = object()


@dataclass(frozen=True)
class Unknown:
    """One of several outputs whose value is not documented; who reads it is refused."""

    kind: str
    name: str
    edge: str

    def refuse(self) -> NoReturn:
        """See `Call.refuse`."""
        refuse(self.kind, self.name, self.edge)


class Call:
    """Arguments of one operation by parameter name, as MIL documents them.

    `opset` is that of the function (5 for iOS 15); `accumulate` the dtype in which sums of float16
    products are kept, float32 or float16. An operator reads every argument that is given:
    `unread` names those that it left, and the interpreter refuses them.

    Values are torch tensors (rank 0 for scalars), `str` for strings, Python lists for MIL lists.
    """

    def __init__(
        self,
        operation: Operation,
        arguments: Mapping[str, tuple[Any, ...]],
        opset: int,
        accumulate: torch.dtype,
        run_block: Callable[[int, Sequence[Any]], tuple[Any, ...]],
    ) -> None:
        self.operation = operation
        self.kind = operation.kind
        self.name = operation.outputs[0].name if operation.outputs else operation.name
        self.opset = opset
        self.accumulate = accumulate
        self._arguments = arguments
        self._run_block = run_block
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._arguments

    def value(self, name: str, default: Any = _REQUIRED) -> Any:
        """An argument of any kind.

        Raises:
            InputFileError: it is missing and has no default, or is given more than once.
        """
        self._read.add(name)
        given = self._arguments.get(name)
        if given is None:
            if default is _REQUIRED:
                raise self.damaged(f"{name} is missing")
            return default
        if len(given) != 1:
            raise self.damaged(f"{name} has {len(given)} values where one belongs")
        return given[0]

    def values(self, name: str) -> tuple[Any, ...]:
        """All arguments of a parameter that takes many."""
        self._read.add(name)
        if name not in self._arguments:
            raise self.damaged(f"{name} is missing")
        return self._arguments[name]

    def tensor(self, name: str) -> torch.Tensor:
        found = self.value(name)
        if not isinstance(found, torch.Tensor):
            raise self.damaged(f"{name} is no tensor")
        return found

    def optional_tensor(self, name: str) -> torch.Tensor | None:
        return self.tensor(name) if self.has(name) else None

    def text(self, name: str, default: Any = _REQUIRED, choices: Sequence[str] = ()) -> str:
        """A string; one that is not among `choices` is refused."""
        found = str(self.value(name, default))
        if choices and found not in choices:
            self.refuse(f"{name}={found!r} is not documented")
        return found

    def flag(self, name: str, default: Any = _REQUIRED) -> bool:
        return bool(self.value(name, default))

    def integer(self, name: str, default: Any = _REQUIRED) -> int:
        return int(self.value(name, default))

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        return float(self.value(name, default))

    def integers(self, name: str, default: Any = _REQUIRED) -> list[int]:
        """A list of integers; one integer is a list of one."""
        found = self.value(name, default)
        if isinstance(found, torch.Tensor):
            return [int(item) for item in found.reshape(-1).tolist()]
        return list(found)

    def flags(self, name: str, default: Any = _REQUIRED) -> list[bool]:
        found = self.value(name, default)
        if isinstance(found, torch.Tensor):
            return [bool(item) for item in found.reshape(-1).tolist()]
        return list(found)

    def result_type(self, index: int = 0) -> Type:
        """What the file says an output is."""
        return self.operation.outputs[index].type

    def result_dtype(self, index: int = 0) -> str:
        """The MIL dtype that the file gives an output."""
        found = self.result_type(index)
        if isinstance(found, ListType):
            return found.element.dtype
        return found.wrapped.dtype if isinstance(found, StateType) else found.dtype

    def block(self, index: int, values: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Run one of the operation's blocks on `values` and return its outputs."""
        if index >= len(self.operation.blocks):
            raise self.damaged(f"it has {len(self.operation.blocks)} blocks")
        return self._run_block(index, values)

    @property
    def unread(self) -> list[str]:
        return sorted(set(self._arguments) - self._read)

    def refuse(self, edge: str) -> NoReturn:
        """Stop: the documentation does not say what comes out here.

        Raises:
            UnverifiableError: always; the verdict is then "unverified", naming the operator.
        """
        refuse(self.kind, self.name, edge)

    def unknown(self, edge: str) -> Unknown:
        """Stands for one output of several where the others are documented."""
        return Unknown(self.kind, self.name, edge)

    def damaged(self, what: str) -> InputFileError:
        return InputFileError(
            f"the ML Program is damaged: {what} in {self.kind} ({self.name})",
            hint="export the model again",
        )


def refuse(kind: str, name: str, edge: str) -> NoReturn:
    """See `Call.refuse`."""
    raise UnverifiableError(
        f"the evaluator does not know what Core ML computes for {kind} ({name}): {edge}",
        hint="run the package on a Mac: isomorph validate PACKAGE there",
    )


def fits(value: Any, declared: Type) -> bool:
    """Whether a computed value is of the type that the file declares."""
    from .types import STORAGE

    if isinstance(declared, ListType):
        return isinstance(value, list)
    if isinstance(declared, StateType) or not isinstance(value, torch.Tensor):
        return True
    return (
        isinstance(declared, TensorType)
        and STORAGE.get(declared.dtype) == value.dtype
        and (
            declared.shape is None
            or (
                len(declared.shape) == value.dim()
                and all(
                    want is None or want == size
                    for want, size in zip(declared.shape, value.shape, strict=True)
                )
            )
        )
    )
