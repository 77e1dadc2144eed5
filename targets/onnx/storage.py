"""Write an ONNX model to disk without gathering its weights in memory.

Protobuf's own serialisation copies every weight several times. Here the graph
without its large weights is serialised as usual and the weights are streamed,
chunk by chunk, from wherever they are (a file mapping of the checkpoint, most
often): into the `.onnx` itself for small models, as the field `raw_data` would
be, or into one external data file. SHA-256 is computed on the way.

Wire format: https://protobuf.dev/programming-guides/encoding; field numbers are
those of onnx.proto (ModelProto.graph 7, GraphProto.initializer 5,
TensorProto.raw_data 9).
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["INLINE_LIMIT", "save", "weight_bytes"]

# Above this many bytes of weights they go to an external file: protobuf stops at 2 GiB.
INLINE_LIMIT = 1_500_000_000

# Weights below this many bytes stay in the serialised graph.
_SMALL = 1024

# ONNX Runtime maps external data at multiples of the page (Linux 4 KiB, Windows 64 KiB).
_PAGE = 4096
_LARGE_PAGE = 65536
_LARGE = 1 << 20

_CHUNK = 8 << 20
_COPY_LIMIT = 128 << 20

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers."""
    return sum(value.const_value.nbytes for value in _weights(model, 0))


def save(model: ir.Model, path: Path, *, external: bool) -> dict[Path, str]:
    """Write `model` to `path`, and its weights to `path` + `.data` if `external`.

    Returns:
        SHA-256 (hex) of each file written, by path.

    Raises:
        OSError: the destination is read-only or full.
    """
    if external:
        return _save_external(model, path, path.with_name(path.name + ".data"))
    return {path: _save_inline(model, path)}


def _save_inline(model: ir.Model, path: Path) -> str:
    weights = _weights(model, _SMALL)
    rest, graph = _skeleton(model, weights)
    heads = [_header(value).SerializeToString(deterministic=True) for value in weights]
    bodies = [value.const_value.nbytes for value in weights]
    entries = [
        head + _length_field(_RAW_DATA, size) for head, size in zip(heads, bodies, strict=True)
    ]
    fields = [
        _length_field(_INITIALIZER, len(entry) + size) + entry
        for entry, size in zip(entries, bodies, strict=True)
    ]
    graph_bytes = graph.SerializeToString(deterministic=True)
    total = len(graph_bytes) + sum(map(len, fields)) + sum(bodies)
    with _HashingWriter(path, total) as out:
        out.write(rest.SerializeToString(deterministic=True))
        out.write(_length_field(_GRAPH, total))
        out.write(graph_bytes)
        for field, value in zip(fields, weights, strict=True):
            out.write(field)
            for chunk in _chunks(value.const_value):
                out.write(chunk)
    return out.hexdigest()


def _save_external(model: ir.Model, path: Path, data_path: Path) -> dict[Path, str]:
    weights = _weights(model, _SMALL)
    rest, graph = _skeleton(model, weights)
    written: dict[Any, tuple[int, int]] = {}
    with _HashingWriter(data_path, weight_bytes(model)) as out:
        for value in weights:
            tensor = value.const_value
            key = _identity(tensor)
            if key is None or key not in written:
                span = (_aligned(out.position, tensor.nbytes), tensor.nbytes)
                out.write(bytes(span[0] - out.position))
                for chunk in _chunks(tensor):
                    out.write(chunk)
                written[key] = span
            else:
                span = written[key]
            _refer(graph, value, data_path.name, *span)
    digests = {data_path: out.hexdigest()}
    rest.graph.CopyFrom(graph)
    with _HashingWriter(path) as out:
        out.write(rest.SerializeToString(deterministic=True))
    return {path: out.hexdigest(), **digests}


def _refer(graph: Any, value: ir.Value, location: str, offset: int, length: int) -> None:
    """Add an initializer whose bytes are in the external file."""
    proto = graph.initializer.add()
    proto.CopyFrom(_header(value))
    proto.data_location = proto.EXTERNAL
    for key, item in (("location", location), ("offset", offset), ("length", length)):
        proto.external_data.add(key=key, value=str(item))


def _skeleton(model: ir.Model, weights: list[ir.Value]) -> tuple[Any, Any]:
    """The model's proto with an empty graph, and the graph's proto without `weights`."""
    import onnx_ir as ir

    names = [str(value.name) for value in weights]
    order = list(model.graph.initializers.values())
    for name in names:
        model.graph.initializers.pop(name)
    try:
        proto = ir.to_proto(model)
    finally:
        model.graph.initializers.clear()
        for value in order:
            model.graph.initializers[str(value.name)] = value
    graph = type(proto.graph)()
    graph.CopyFrom(proto.graph)
    proto.ClearField("graph")
    return proto, graph


def _weights(model: ir.Model, at_least: int) -> list[ir.Value]:
    return [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes >= at_least
    ]


def _header(value: ir.Value) -> Any:
    import onnx

    tensor = value.const_value
    assert tensor is not None
    return onnx.TensorProto(
        name=value.name,
        data_type=int(tensor.dtype),
        dims=[int(size) for size in tensor.shape],
    )


def _chunks(tensor: Any) -> Iterator[Any]:
    """The tensor's bytes in row-major little-endian order, a few megabytes at a time."""
    import numpy as np
    import torch

    raw = getattr(tensor, "raw", None)
    if isinstance(raw, torch.Tensor):
        yield from _torch_chunks(raw)
    elif isinstance(raw, np.ndarray) and raw.nbytes == tensor.nbytes and raw.flags.c_contiguous:
        yield from _views(raw.reshape(-1).view(np.uint8).data)
    else:
        yield from _views(memoryview(tensor.tobytes()))


def _torch_chunks(tensor: Any) -> Iterator[Any]:
    import torch

    tensor = tensor.detach()
    if not tensor.is_contiguous():
        # A transposed or expanded view. Whole, torch transposes it about four times as fast as
        # in slices; above the limit memory matters more.
        if tensor.numel() * tensor.element_size() <= _COPY_LIMIT:
            yield from _torch_chunks(tensor.contiguous())
            return
        row = max(1, tensor[:1].numel() * tensor.element_size())
        step = max(1, _CHUNK // row)
        for start in range(0, tensor.shape[0], step):
            yield from _torch_chunks(tensor[start : start + step].contiguous())
        return
    if tensor.numel():
        yield from _views(memoryview(tensor.cpu().reshape(-1).view(torch.uint8).numpy()))


def _views(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, data.nbytes, _CHUNK):
        yield data[start : start + _CHUNK]


def _identity(tensor: Any) -> Any:
    """Equal for tensors that hold the same bytes because they share memory; None if unknown."""
    raw = getattr(tensor, "raw", None)
    if raw is None or not hasattr(raw, "data_ptr") or not raw.is_contiguous():
        return None
    return raw.data_ptr(), tensor.nbytes


def _aligned(position: int, size: int) -> int:
    page = _LARGE_PAGE if size >= _LARGE else _PAGE
    return -(-position // page) * page


def _length_field(number: int, length: int) -> bytes:
    """Tag of a length-delimited field and its length."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class _HashingWriter:
    """Writes a file and hashes what it writes, on a second thread: both leave Python's lock.

    Use as a context manager; `hexdigest` is known afterwards. What is written
    must not change until then.
    """

    # Chunks that may wait to be hashed, which bounds the memory of those that are copies.
    _WAITING = 4

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open `path` anew; `size` is the bytes to come, if known, for the disk to set aside."""
        self._file = path.open("wb", buffering=0)
        if size:
            _reserve(self._file, size)
        self._digest = hashlib.sha256()
        self._queue: queue.Queue[Any] = queue.Queue(self._WAITING)
        self._thread = threading.Thread(target=self._hash, daemon=True)
        self.position = 0

    def __enter__(self) -> _HashingWriter:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.put(None)
        self._thread.join()
        if kind is None:
            self._file.truncate(self.position)
        self._file.close()

    def _hash(self) -> None:
        while (data := self._queue.get()) is not None:
            self._digest.update(data)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        self._queue.put(view)
        written = 0
        while written < view.nbytes:  # the system may take less than it is given
            written += self._file.write(view[written:])
        self.position += view.nbytes

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _reserve(file: IO[bytes], size: int) -> None:
    """Set disk space aside: faster than growing the file, and a full disk shows at once."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except AttributeError:
        return  # not a POSIX system
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            file.close()
            raise
