"""Values inside a `.pte` file, as ExecuTorch's runtime logs them.

The runtime that pip installs can keep what each kernel and each delegated part gives (its
"ETDump" with a debug buffer). What happens inside a delegated part is not shown.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, UsageError, first_line
from ..watching import Value
from .calls import calls_of
from .flatbuffer import MalformedError, Table, root
from .native_log import native_log
from .pte import DTYPES, METHOD

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WatchedProgram"]

_ALIGNMENT = 64  # of each value in the debug buffer, and then some


class WatchedProgram:
    """The method `forward` of a file, each of whose calls is logged.

    Args:
        path: the file.
        inputs: names, in the method's order.
    """

    def __init__(self, path: Path, inputs: Sequence[str]) -> None:
        self._path = path
        self._calls = calls_of(path, inputs)
        self._makers = {name: call for call in self._calls for name in call.outputs}

    def values(self) -> tuple[Value, ...]:
        """What kernels and delegated parts give, in order."""
        return tuple(
            Value(name, call.operator, f"instruction {call.number}", call.sources)
            for name, call in self._makers.items()
        )

    def run(
        self, tensors: Sequence[Any], names: Sequence[str]
    ) -> tuple[list[Any], dict[str, NDArray[Any]]]:
        """The method's outputs, and the values of `names`."""
        for name in names:
            if name not in self._makers:
                raise UsageError(f"the program computes no {name}")
        outputs, logged = self._logged(tensors) if names else (self._plain(tensors), {})
        found = {}
        for name in names:
            call = self._makers[name]
            values = logged.get(call.number, [])
            if len(values) != len(call.logged):
                raise ConversionError(
                    f"ExecuTorch logged {len(values)} values of {call.operator}, "
                    f"not {len(call.logged)}",
                    hint="another version of executorch may log other values",
                )
            found[name] = values[call.logged.index(name)]
        return outputs, found

    def _plain(self, tensors: Sequence[Any]) -> list[Any]:
        from executorch.runtime import Runtime

        with native_log():
            program = Runtime.get().load_program(self._path)
            return list(program.load_method(METHOD).execute(tensors))

    def _logged(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[int, list[NDArray[Any]]]]:
        """Outputs, and by instruction what was logged."""
        from executorch.extension.pybindings.portable_lib import _load_program

        size = sum(call.size + _ALIGNMENT * len(call.logged) for call in self._calls)
        size += sum(_ALIGNMENT + t.numel() * t.element_size() for t in tensors)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            dump, buffer = Path(folder, "etdump"), Path(folder, "buffer")
            try:
                with native_log() as log:
                    program = _load_program(
                        str(self._path), enable_etdump=True, debug_buffer_size=2 * size + 4096
                    )
                    outputs = [t.clone() for t in program.load_method(METHOD).call(tensors)]
                    program.write_etdump_result_to_file(str(dump), str(buffer))
            except Exception as error:
                raise ConversionError(
                    f"ExecuTorch failed while it logged {self._path.name}: "
                    f"{log.reasons or first_line(error)}",
                    hint="the values inside cannot be seen",
                ) from error
            try:
                return outputs, _read(dump.read_bytes(), buffer.read_bytes())
            except MalformedError as error:
                raise ConversionError(
                    f"what this executorch logs cannot be read: {error}",
                    hint="the values inside cannot be seen",
                ) from error


def _read(dump: bytes, buffer: bytes) -> dict[int, list[NDArray[Any]]]:
    """Logged tensors by instruction, in order; field numbers of etdump_schema_flatcc.fbs."""
    found: dict[int, list[NDArray[Any]]] = {}
    top = root(memoryview(dump)[4:])  # the size stands before it
    for run in top.tables(1):
        for event in run.tables(3):
            debug = event.table(2)
            entry = None if debug is None else debug.table(2)
            # The method's own outputs are logged too, in a chain that does not exist.
            if debug is None or entry is None or debug.number(0, "<Q") != 0:
                continue
            several = entry.table(2)
            tensors = [entry.table(1)] if several is None else several.tables(0)
            values = found.setdefault(debug.number(1, "<i", -1), [])
            values += [_array(tensor, buffer) for tensor in tensors if tensor is not None]
    return found


def _array(tensor: Table, buffer: bytes) -> NDArray[Any]:
    import numpy as np

    code = tensor.number(0, "<b")
    name = DTYPES.get(code)
    if name is None:
        raise MalformedError(f"a value has the scalar type {code}")
    sizes, strides = tensor.numbers(1, "<q"), tensor.numbers(2, "<q")
    half = name == "bfloat16"
    dtype = np.dtype(np.uint16 if half else name)
    start = tensor.number(3, "<q")
    if 0 in sizes:  # such a value is in no memory
        return np.zeros(sizes, np.float32 if half else dtype)
    if start + math.prod(sizes) * dtype.itemsize > len(buffer):
        raise MalformedError("a value lies outside the buffer")
    steps = tuple(stride * dtype.itemsize for stride in strides)
    array: NDArray[Any] = np.ndarray(sizes, dtype, buffer, start, steps).copy()
    if half:
        from ..bfloat16 import from_bits

        return from_bits(array)
    return array
