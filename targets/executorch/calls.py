"""The calls of a `.pte` file's method, and which value each of them takes and gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .flatbuffer import MalformedError, Table
from .pte import (
    DELEGATE_CALL,
    KERNEL_CALL,
    TENSOR,
    TENSOR_LIST,
    item,
    operators_of,
    reader_of,
    xnnpack_graph,
)

__all__ = ["Call", "calls_of"]


@dataclass(frozen=True)
class Call:
    """A call of a kernel, or of a delegated part.

    number: of its instruction. sources: names of the values that it takes, `outputs` of those
    that it gives. logged: what the runtime logs of it, in order; None for what has no name.
    size: bytes of all that is logged, at most.
    """

    number: int
    operator: str
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    logged: tuple[str | None, ...]
    size: int


def calls_of(path: Path, inputs: Sequence[str]) -> tuple[Call, ...]:
    """The calls of the method `forward`, in order.

    Args:
        path: a `.pte` file.
        inputs: names of the method's inputs.

    Raises:
        MalformedError: the file is damaged.
        OSError: it cannot be read.
    """
    reader = reader_of(path)
    _, plan = reader.plans()
    return tuple(_Method(plan, reader.parts(plan), inputs).calls())


class _Method:
    def __init__(
        self, plan: Table, parts: list[tuple[str, memoryview]], inputs: Sequence[str]
    ) -> None:
        self._plan = plan
        self._parts = parts
        self._values = plan.tables(2)
        self._names: dict[int, str] = {}
        # Views of one value have numbers of their own, and its memory.
        self._by_memory: dict[tuple[int, int, int], str] = {}
        self._writes: dict[int, int] = {}
        for tensor, name in zip(plan.numbers(3, "<i"), inputs, strict=True):
            self._name(tensor, name)

    def calls(self) -> Iterator[Call]:
        operators = operators_of(self._plan)
        for chain in self._plan.tables(5)[:1]:
            for number, instruction in enumerate(chain.tables(2)):
                kind, call = instruction.number(0, "<B"), instruction.table(1)
                if call is None or kind not in (KERNEL_CALL, DELEGATE_CALL):
                    continue
                index, arguments = call.number(0, "<i"), call.numbers(1, "<i")
                if not arguments:
                    continue
                every = [t for argument in arguments for t in self._tensors(argument)]
                if kind == KERNEL_CALL:
                    # The last argument is what a kernel returns: its outputs, which are logged.
                    operator = item(operators, index)
                    given = logged = list(self._tensors(arguments[-1]))
                else:
                    operator, data = item(self._parts, index)
                    given, logged = every[-self._count(data, every) :], every
                yield self._call(number, operator, every, given, logged)

    def _call(
        self, number: int, operator: str, every: list[int], given: list[int], logged: list[int]
    ) -> Call:
        found = (self._known(t) for t in every if t not in given)
        sources = tuple(dict.fromkeys(name for name in found if name is not None))
        outputs = tuple(self._written(tensor) for tensor in dict.fromkeys(given))
        return Call(
            number,
            operator,
            sources,
            outputs,
            tuple(self._names[t] if t in given else None for t in logged),
            sum(map(self._bytes, logged)),
        )

    @staticmethod
    def _count(data: memoryview, every: list[int]) -> int:
        """How many of a delegated part's values are results: of other backends' parts, one."""
        graph = xnnpack_graph(data)
        count = 1 if graph is None else len(graph.numbers(5, "<I"))
        if not 0 < count <= len(every):
            raise MalformedError("a delegated part gives more values than it has")
        return count

    def _written(self, tensor: int) -> str:
        self._writes[tensor] = count = self._writes.get(tensor, 0) + 1
        name = f"value {tensor}" + (f"#{count}" if count > 1 else "")
        self._name(tensor, name)
        return name

    def _name(self, tensor: int, name: str) -> None:
        self._names[tensor] = name
        if (memory := self._memory(tensor)) is not None:
            self._by_memory[memory] = name

    def _known(self, tensor: int) -> str | None:
        """The value's name; None for a constant."""
        if tensor in self._names:
            return self._names[tensor]
        memory = self._memory(tensor)
        return None if memory is None else self._by_memory.get(memory)

    def _tensors(self, index: int) -> Iterator[int]:
        """The tensor at `index`, or those of the list there."""
        value = item(self._values, index)
        kind, content = value.number(0, "<B"), value.table(1)
        if kind == TENSOR:
            yield index
        elif kind == TENSOR_LIST and content is not None:
            yield from content.numbers(0, "<i")

    def _memory(self, tensor: int) -> tuple[int, int, int] | None:
        table = item(self._values, tensor).table(1)
        place = None if table is None else table.table(6)
        if place is None:
            return None
        return place.number(0, "<I"), place.number(1, "<I"), place.number(2, "<I")

    def _bytes(self, tensor: int) -> int:
        """The largest size; eight bytes an element are enough for any dtype."""
        table = item(self._values, tensor).table(1)
        return 0 if table is None else 8 * math.prod(table.numbers(2, "<i"))
