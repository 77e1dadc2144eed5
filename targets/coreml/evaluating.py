"""Computes a package with the evaluator of this project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ... import __version__
from ..base import Evidence
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
        import torch

        from .evaluate.interpreter import run_function
        from .evaluate.state import fresh_states

        accumulate = torch.float16 if reading == "float16 sums" else torch.float32
        given = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        found = run_function(self._function, {**given, **fresh_states(self._function)}, accumulate)
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
