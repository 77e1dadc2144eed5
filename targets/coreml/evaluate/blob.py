"""The weight file of an ML Program (`weights/weight.bin`), memory-mapped.

Layout, read off files that coremltools 9.0 wrote (its storage format 2), little-endian: 64 bytes
of header (uint32 count of entries, uint32 version), then entries aligned to 64 bytes. A value's
`offset` points to an entry's 64 bytes of metadata: uint32 sentinel, uint32 dtype, uint64 size in
bytes, uint64 offset of the data, uint64 bits of padding in the last byte.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ....errors import InputFileError
from .types import BITS, STORAGE

__all__ = ["BlobFile", "decoded"]

_SENTINEL = 0xDEADBEEF
_VERSION = 2
_ALIGNMENT = 64
_METADATA = struct.Struct("<IIQQQ")
# Numbers of the storage format's dtypes.
_DTYPES = {
    **{1: "fp16", 2: "fp32", 3: "uint8", 4: "int8", 5: "bf16", 6: "int16", 7: "uint16"},
    **{8: "int4", 9: "uint1", 10: "uint2", 11: "uint4", 12: "uint3", 13: "uint6"},
    **{14: "int32", 15: "uint32"},
}
# numpy's dtype of what lies in the file, where it is not that of STORAGE.
_ON_DISK = {
    **{"fp16": "<f2", "fp32": "<f4", "fp64": "<f8", "uint16": "<u2", "uint32": "<u4"},
    **{"uint8": "u1", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "bool": "?"},
}
_REMEDY = "copy the whole .mlpackage folder again, or export the model again"


@dataclass(frozen=True)
class BlobFile:
    """A weight file; tensors are views of the mapped file and must not be written to."""

    path: Path
    content: np.memmap

    @classmethod
    def open(cls, path: Path) -> BlobFile:
        """Map the file.

        Raises:
            InputFileError: it is missing, too short, or of another format.
        """
        try:
            if not path.is_file():  # a pipe would never open
                raise FileNotFoundError(path)
            content = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            what = "does not exist" if missing else f"cannot be read ({error})"
            raise InputFileError(f"{path}, the weights, {what}", hint=_REMEDY) from error
        blob = cls(path, content)
        if (
            len(content) < _ALIGNMENT
            or struct.unpack("<I", blob._bytes(4, 4).tobytes())[0] != _VERSION
        ):
            raise InputFileError(f"{path} is not a Core ML weight file", hint=_REMEDY)
        return blob

    def tensor(self, offset: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The value whose metadata lies at `offset`.

        Raises:
            InputFileError: the file ends before, or holds another dtype or size.
        """
        sentinel, kind, size, start, padding = _METADATA.unpack(self._bytes(offset, 32).tobytes())
        if sentinel != _SENTINEL or _DTYPES.get(kind) != dtype:
            raise InputFileError(
                f"{self.path} holds no {dtype} value at byte {offset}", hint=_REMEDY
            )
        bits = BITS[dtype] * math.prod(shape)
        if size != -(-bits // 8) or (padding and padding != size * 8 - bits):
            raise InputFileError(
                f"{self.path} holds {size} bytes at byte {offset} where the specification asks for "
                f"{dtype}{list(shape)}",
                hint=_REMEDY,
            )
        if start % _ALIGNMENT:
            raise InputFileError(f"{self.path} holds unaligned data at {start}", hint=_REMEDY)
        try:
            return decoded(self._bytes(start, size), dtype, shape)
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            raise InputFileError(
                f"{self.path} holds no {dtype}{list(shape)} at byte {offset}", hint=_REMEDY
            ) from error

    def _bytes(self, start: int, size: int) -> np.ndarray:
        if start + size > len(self.content):
            raise InputFileError(
                f"{self.path} is truncated: it has {len(self.content)} bytes where at least "
                f"{start + size} are needed",
                hint=_REMEDY,
            )
        part: np.ndarray = self.content[start : start + size]
        return part


def decoded(raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Values of `dtype` from their bytes (uint8 array); narrow ones are packed, low bits first.

    Raises:
        ValueError: the bytes do not fit the shape.
    """
    if dtype == "bf16":
        return _tensor(raw.view("<i2")).view(torch.bfloat16).reshape(shape)
    if dtype in _ON_DISK:
        values = raw.view(_ON_DISK[dtype])
        if dtype in ("uint16", "uint32"):
            values = values.astype("i4" if dtype == "uint16" else "i8")
        return _tensor(values).reshape(shape)
    count, width = math.prod(shape), BITS[dtype]
    if len(raw) != -(-count * width // 8):
        raise ValueError(f"{len(raw)} bytes for {count} values of {width} bits")
    bits = np.unpackbits(raw, bitorder="little")[: count * width].reshape(count, width)
    found = (bits << np.arange(width, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    if dtype == "int4":
        found = ((found ^ 8).astype(np.int16) - 8).astype(np.int8)
    return torch.from_numpy(found).to(STORAGE[dtype]).reshape(shape)


def _tensor(array: np.ndarray) -> torch.Tensor:
    import warnings

    with warnings.catch_warnings():  # torch warns that a mapped file must not be written to
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(np.asarray(array))
