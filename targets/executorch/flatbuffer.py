"""Reads flatbuffers without trusting them: every offset is checked against the data.

Only what a `.pte` file and XNNPACK's blobs in it need: tables, strings, vectors.
The format: https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["MalformedError", "Table", "root"]


class MalformedError(ValueError):
    """The data is no flatbuffer of the expected form."""


class Table:
    """A table inside `data`; fields are addressed by their number in the schema."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        self._fields = position - _read(data, "<i", position)
        self._size = _read(data, "<H", self._fields)

    def number(self, field: int, kind: str, default: int = 0) -> int:
        """A scalar; `kind` is its struct format, like `<i`."""
        at = self._at(field)
        return default if at is None else int(_read(self._data, kind, at))

    def table(self, field: int) -> Table | None:
        at = self._at(field)
        return None if at is None else Table(self._data, self._follow(at))

    def tables(self, field: int) -> list[Table]:
        return [Table(self._data, self._follow(at)) for at in self._items(field, 4)]

    def numbers(self, field: int, kind: str) -> tuple[int, ...]:
        width = struct.calcsize(kind)
        return tuple(int(_read(self._data, kind, at)) for at in self._items(field, width))

    def count(self, field: int) -> int:
        """Length of a vector of tables."""
        return len(self._items(field, 4))

    def text(self, field: int) -> str:
        try:
            return bytes(self.octets(field)).decode("utf-8")
        except UnicodeDecodeError as error:  # the runtime would abort when it prints such a name
            raise MalformedError("a name in it is no text") from error

    def octets(self, field: int) -> memoryview:
        items = self._items(field, 1)
        return self._data[items.start : items.stop]

    def _at(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        offset = _read(self._data, "<H", self._fields + entry)
        return None if offset == 0 else self._position + int(offset)

    def _follow(self, at: int) -> int:
        return at + int(_read(self._data, "<I", at))

    def _items(self, field: int, width: int) -> range:
        """Positions of a vector's elements."""
        at = self._at(field)
        if at is None:
            return range(0)
        start = self._follow(at) + 4
        end = start + int(_read(self._data, "<I", start - 4)) * width
        if end > len(self._data):
            raise MalformedError("a vector runs past the end")
        return range(start, end, width)


def root(data: memoryview) -> Table:
    """The outermost table.

    Raises:
        MalformedError: here, and by any method of a table, where the data does not hold together.
    """
    return Table(data, int(_read(data, "<I", 0)))


def _read(data: memoryview, kind: str, position: int) -> Any:
    if position < 0 or position + struct.calcsize(kind) > len(data):
        raise MalformedError("an offset points outside the data")
    return struct.unpack_from(kind, data, position)[0]
