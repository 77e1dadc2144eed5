"""What a `.pte` file says of itself: its border, its operators, the share that is delegated.

Read from the bytes alone. Field numbers follow executorch's `program.fbs` and
XNNPACK's `schema.fbs`, which only ever add fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .flatbuffer import MalformedError, Table, root

__all__ = [
    "DELEGATE_CALL",
    "DTYPES",
    "KERNEL_CALL",
    "METHOD",
    "SIGNATURE_METHOD",
    "TENSOR",
    "TENSOR_LIST",
    "BorderTensor",
    "PteFile",
    "item",
    "operators_of",
    "read_pte",
    "reader_of",
    "xnnpack_graph",
]

METHOD = "forward"
# A constant method of ours, whose value is the signature as JSON.
SIGNATURE_METHOD = "isomorph_signature"

# executorch's ScalarType: the numbers of torch's c10::ScalarType.
DTYPES = {
    **{0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32"},
    **{7: "float64", 11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64"},
}
_XNN_DTYPES = {1: "float32", 2: "float16", 15: "bfloat16"}

# Numbers of the members of the unions in program.fbs.
TENSOR, _STRING, TENSOR_LIST = 5, 6, 10
KERNEL_CALL, DELEGATE_CALL = 1, 2
_PLAIN = 1  # XNNTensorValue, as against a quantised one


@dataclass(frozen=True)
class BorderTensor:
    """A tensor that goes in or out; `sizes` are the largest it can have."""

    dtype: str
    sizes: tuple[int, ...]
    dynamic: bool


@dataclass(frozen=True)
class PteFile:
    """The method `forward` of a file.

    `kernels` names the operator of each call of a kernel, `delegates` the backend of each
    delegated part, `delegated` counts the operators in those whose content can be read
    (None: there is one that cannot). `delegate_dtypes` are of the values in those parts.
    """

    inputs: tuple[BorderTensor, ...]
    outputs: tuple[BorderTensor, ...]
    kernels: tuple[str, ...]
    delegates: tuple[str, ...]
    delegated: int | None
    delegate_dtypes: tuple[str, ...]
    signature: str | None


def read_pte(path: Path) -> PteFile:
    """Read and check the structure of a file.

    Raises:
        MalformedError: it is no `.pte` file, or a damaged one.
        OSError: it cannot be read.
    """
    return reader_of(path).read()


def reader_of(path: Path) -> _Reader:
    """What looks into a file; raises as `read_pte` does."""
    import mmap

    with path.open("rb") as file:
        if path.stat().st_size < 16:
            raise MalformedError("it is too short")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _Reader(memoryview(mapped))


class _Reader:
    def __init__(self, data: memoryview) -> None:
        if bytes(data[4:6]) != b"ET":
            raise MalformedError("it does not begin like one")
        self._data = data
        self._base: int | None = None
        size = len(data)
        if bytes(data[8:12]) == b"eh00":
            if len(data) < 40:
                raise MalformedError("its header is cut off")
            size, self._base, content = struct.unpack_from("<QQQ", data, 16)
            if size > len(data) or self._base + content > len(data):
                raise MalformedError("it is truncated")
        self._program = root(data[:size])

    def read(self) -> PteFile:
        segments = [self._segment(segment) for segment in self._program.tables(4)]
        plans, plan = self.plans()
        values = plan.tables(2)
        operators = operators_of(plan)
        kernels, calls = [], []
        for chain in plan.tables(5):
            for instruction in chain.tables(2):
                kind, call = instruction.number(0, "<B"), instruction.table(1)
                if kind == KERNEL_CALL and call is not None:
                    kernels.append(item(operators, call.number(0, "<i")))
                elif kind == DELEGATE_CALL and call is not None:
                    calls.append(call.number(0, "<i"))
        delegates = plan.tables(7)
        parts = [item(delegates, index) for index in calls]
        blobs = [self._blob(part, segments) for part in parts]
        counts = [_xnn_nodes(blob) for blob in blobs]
        known = [count for count, _ in counts if count is not None]
        return PteFile(
            inputs=tuple(_border(values, plan.numbers(3, "<i"))),
            outputs=tuple(_border(values, plan.numbers(4, "<i"))),
            kernels=tuple(kernels),
            delegates=tuple(part.text(0) for part in parts),
            delegated=sum(known) if len(known) == len(counts) else None,
            delegate_dtypes=tuple(sorted(set().union(*(dtypes for _, dtypes in counts)))),
            signature=_constant_text(plans.get(SIGNATURE_METHOD)),
        )

    def parts(self, plan: Table) -> list[tuple[str, memoryview]]:
        """Backend and data of each delegated part of a method."""
        segments = [self._segment(segment) for segment in self._program.tables(4)]
        return [(part.text(0), self._blob(part, segments)) for part in plan.tables(7)]

    def plans(self) -> tuple[dict[str, Table], Table]:
        """All methods, and `forward`."""
        plans = {plan.text(0): plan for plan in self._program.tables(1)}
        if METHOD not in plans:
            raise MalformedError(f"it has no method called {METHOD}")
        return plans, plans[METHOD]

    def _segment(self, segment: Table) -> memoryview:
        size = segment.number(1, "<Q")
        if size == 0:
            return self._data[:0]
        if self._base is None:
            raise MalformedError("it has segments and no header")
        start = self._base + segment.number(0, "<Q")
        end = start + size
        if end > len(self._data):
            raise MalformedError("a segment is cut off")
        return self._data[start:end]

    def _blob(self, delegate: Table, segments: list[memoryview]) -> memoryview:
        reference = delegate.table(1)
        if reference is None:
            raise MalformedError("a delegate has no data")
        index = reference.number(1, "<I")
        if reference.number(0, "<b") == 1:
            return item(segments, index)
        return item(self._program.tables(3), index).octets(0)


def operators_of(plan: Table) -> list[str]:
    """Names of the operators whose kernels a method calls."""
    return [".".join(filter(None, (o.text(0), o.text(1)))) for o in plan.tables(6)]


def _border(values: list[Table], indices: Iterable[int]) -> Iterator[BorderTensor]:
    for index in indices:
        value = item(values, index)
        tensor = value.table(1)
        if value.number(0, "<B") != TENSOR or tensor is None:
            raise MalformedError("an input or output is no tensor")
        code = tensor.number(0, "<b")
        yield BorderTensor(
            dtype=DTYPES.get(code, f"scalar type {code}"),
            sizes=tensor.numbers(2, "<i"),
            dynamic=tensor.number(8, "<b") != 0,
        )


def _constant_text(plan: Table | None) -> str | None:
    """The text that a constant method returns."""
    if plan is None:
        return None
    values = plan.tables(2)
    for index in plan.numbers(4, "<i"):
        value = item(values, index)
        text = value.table(1)
        if value.number(0, "<B") == _STRING and text is not None:
            return text.text(0)
    return None


def xnnpack_graph(blob: memoryview) -> Table | None:
    """The graph in a part of XNNPACK's; None for another backend's."""
    if bytes(blob[4:8]) != b"XH00" or len(blob) < 30:
        return None
    start, size = struct.unpack_from("<II", blob, 10)
    if start + size > len(blob):
        raise MalformedError("a part for XNNPACK is cut off")
    return root(blob[start : start + size])


def _xnn_nodes(blob: memoryview) -> tuple[int | None, set[str]]:
    """Number of operators in a part of XNNPACK's, and the dtypes of its values.

    (None, empty) for another backend's, whose data we cannot read.
    """
    graph = xnnpack_graph(blob)
    if graph is None:
        return None, set()
    dtypes = set()
    for value in graph.tables(2):
        tensor = value.table(1)
        if tensor is not None and value.number(0, "<B") == _PLAIN:
            code = tensor.number(0, "<h")
            dtypes.add(_XNN_DTYPES.get(code, f"type {code}"))
        elif tensor is not None:
            dtypes.add("quantized")
    return graph.count(1), dtypes


_Item = TypeVar("_Item")


def item(items: Sequence[_Item], index: int) -> _Item:
    """`items[index]`, or MalformedError."""
    if not 0 <= index < len(items):
        raise MalformedError("an index points at nothing")
    return items[index]
