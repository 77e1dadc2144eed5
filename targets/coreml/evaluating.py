"""Computes a package with the evaluator of this project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ... import __version__
from ..base import Evidence
from ..watching import Value
from .evaluate.package import Package
from .evaluate.program import Block, Function, Operation
from .evaluate.types import ListType, StateType, Type

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EvaluatingRunner"]

_READINGS = ("float32 sums", "float16 sums")


class EvaluatingRunner:
    """Evaluates one function of a package that was read; its weights stay mapped."""

    def __init__(self, package: Package, function: Function) -> None:
        self._package = package
        self._function = function
        operations = list(_operations(function.block))
        halves = any(_is_half(port.type) for item in operations for port in item.outputs)
        self.readings = _READINGS if halves else ()
        self.evidence = Evidence(
            kind="evaluated",
            runtime="isomorph evaluator",
            version=__version__,
            device="cpu",
            details={
                "opset": f"CoreML{function.opset}",
                "operators": sum(item.kind != "const" for item in operations),
                "precision": "float32 and float16" if halves else "float32",
            },
        )

    def __call__(
        self, arrays: Mapping[str, NDArray[Any]], reading: str
    ) -> Mapping[str, NDArray[Any]]:
        """Outputs by feature name; `reading` is one of `readings`, or empty.

        States are new, all zeros, in each call, as when an app makes one for each prediction.
        """
        return self._run(self._function, arrays, reading)

    def values(self) -> tuple[Value, ...]:
        """What the program computes from its inputs; blocks are their operation's."""
        from .evaluate.parts import computed, sources

        return tuple(
            Value(port.name, operation.kind, operation.name, sources(self._function, operation))
            for operation, port in computed(self._function)
        )

    def watching(
        self, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> Mapping[str, NDArray[Any]]:
        """The outputs, and the values of `names`."""
        from .evaluate.parts import with_outputs

        return self._run(with_outputs(self._function, names), arrays)

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> Mapping[str, NDArray[Any]]:
        """`names`, computed from `given` alone."""
        from .evaluate.parts import part

        return self._run(part(self._function, given, names), given)

    def _run(
        self, function: Function, arrays: Mapping[str, NDArray[Any]], reading: str = ""
    ) -> Mapping[str, NDArray[Any]]:
        import torch

        from .evaluate.interpreter import run_function
        from .evaluate.state import fresh_states

        accumulate = torch.float16 if reading == "float16 sums" else torch.float32
        given = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        found = run_function(function, {**given, **fresh_states(function)}, accumulate)
        return {name: value.numpy() for name, value in found.items()}


def _operations(block: Block) -> Iterator[Operation]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _operations(inner)


def _is_half(kind: Type) -> bool:
    if isinstance(kind, ListType):
        return kind.element.dtype == "fp16"
    return (kind.wrapped if isinstance(kind, StateType) else kind).dtype == "fp16"
