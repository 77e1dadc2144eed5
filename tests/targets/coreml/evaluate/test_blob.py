"""The weight file: every dtype that coremltools writes, and files that are no such thing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError
from isomorph.targets.coreml.evaluate.blob import BlobFile, decoded
from isomorph.targets.coreml.evaluate.types import BITS, STORAGE
from isomorph.targets.coreml.quiet import coremltools

COUNT = 13
INTEGERS = {
    **{"int4": "i1", "uint1": "u1", "uint2": "u1", "uint3": "u1", "uint4": "u1", "uint6": "u1"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
}


def narrow(values: Any, dtype: str) -> Any:
    coremltools()
    from coremltools.converters.mil.mil import types

    return values.astype(types.nptype_from_builtin(getattr(types, dtype)))


def sample(dtype: str) -> Any:
    """COUNT integers over the whole range of `dtype`."""
    low = -(2 ** (BITS[dtype] - 1)) if dtype.startswith("int") else 0
    most = low + 2 ** BITS[dtype]
    found = np.random.default_rng(2).integers(low, most, COUNT).astype(INTEGERS[dtype])
    found[0], found[-1] = low, most - 1
    return narrow(found, dtype)


@pytest.fixture
def weights(tmp_path: Path) -> tuple[Path, dict[str, int], dict[str, Any]]:
    """A file with a value of each dtype that coremltools' own writer knows; offsets; values."""
    coremltools()
    from coremltools.libmilstoragepython import _BlobStorageWriter

    path = tmp_path / "weight.bin"
    writer, offsets, values = _BlobStorageWriter(str(path)), {}, {}
    for dtype in INTEGERS:
        values[dtype] = sample(dtype)
        offsets[dtype] = getattr(writer, f"write_{dtype}_data")(values[dtype])
    for dtype, name in (("fp16", "fp16"), ("fp32", "float")):
        values[dtype] = np.linspace(-3, 60000, COUNT).astype("f2" if dtype == "fp16" else "f4")
        raw = values[dtype].view("u2") if dtype == "fp16" else values[dtype]
        offsets[dtype] = getattr(writer, f"write_{name}_data")(raw)
    del writer  # writes the file
    return path, offsets, values


def test_every_dtype_that_coremltools_writes(weights: Any) -> None:
    path, offsets, values = weights
    blob = BlobFile.open(path)
    for dtype, offset in offsets.items():
        found = blob.tensor(offset, dtype, (COUNT,))
        assert found.dtype == STORAGE[dtype], dtype
        assert np.array_equal(found.numpy(), values[dtype]), dtype


def test_its_own_reader_reads_the_same(weights: Any) -> None:
    path, offsets, _ = weights
    from coremltools.libmilstoragepython import _BlobStorageReader

    reader, blob = _BlobStorageReader(str(path)), BlobFile.open(path)
    for dtype in INTEGERS:
        second = getattr(reader, f"read_{dtype}_data")(offsets[dtype])
        assert np.array_equal(blob.tensor(offsets[dtype], dtype, (COUNT,)).numpy(), second), dtype


def test_the_writer_knows_no_dtype_that_is_missing_here() -> None:
    coremltools()
    from coremltools.libmilstoragepython import _BlobStorageWriter

    written = {name for name in dir(_BlobStorageWriter) if name.startswith("write_")}
    known = {*INTEGERS, "fp16", "float"}
    assert written == {f"write_{dtype}_data" for dtype in known}


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d not in ("int16", "uint16", "int32")])
def test_bytes_in_the_specification(dtype: str) -> None:
    """What coremltools packs for a constant that it keeps in the specification itself."""
    coremltools()
    from coremltools.converters.mil.backend.mil.helper import create_tensor_value

    values = sample(dtype)
    held = create_tensor_value(values).immediateValue.tensor
    assert held.WhichOneof("value") == "bytes"
    raw = np.frombuffer(bytearray(held.bytes.values), np.uint8)
    assert np.array_equal(decoded(raw, dtype, (COUNT,)).numpy(), values)


def test_bf16() -> None:
    raw = torch.tensor([1.5, -2.0]).bfloat16().view(torch.int16).numpy().view(np.uint8)
    assert decoded(raw, "bf16", (2,)).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("shape", [(COUNT + 1,), (COUNT, 2), (), (2**62, 2**62), (0, 2**70)])
def test_a_shape_that_is_not_that_of_the_data(weights: Any, shape: tuple[int, ...]) -> None:
    path, offsets, _ = weights
    for dtype in ("fp32", "uint3"):
        with pytest.raises(InputFileError, match="where the specification asks for"):
            BlobFile.open(path).tensor(offsets[dtype], dtype, shape)


def test_another_dtype_than_the_file_holds(weights: Any) -> None:
    path, offsets, _ = weights
    for dtype, other in (("int8", "uint8"), ("fp16", "int16"), ("fp32", "int32"), ("fp16", "fp8")):
        with pytest.raises(InputFileError, match="holds no"):
            BlobFile.open(path).tensor(offsets[dtype], other, (COUNT,))


@pytest.mark.parametrize("offset", [0, 1, 63, 10**6, 2**63, 2**64 - 1])
def test_an_offset_that_leads_nowhere(weights: Any, offset: int) -> None:
    with pytest.raises(InputFileError):
        BlobFile.open(weights[0]).tensor(offset, "fp32", (COUNT,))


@pytest.mark.parametrize(
    ("place", "value"), [("<8xQ", 2**63), ("<16xQ", 2**64 - 1), ("<16xQ", 65), ("<24xQ", 5)]
)
def test_metadata_that_lies(weights: Any, place: str, value: int) -> None:
    path, offsets, _ = weights
    content = bytearray(path.read_bytes())
    skipped = struct.calcsize(place) - 8
    struct.pack_into("<Q", content, offsets["fp32"] + skipped, value)
    path.write_bytes(content)
    with pytest.raises(InputFileError):
        BlobFile.open(path).tensor(offsets["fp32"], "fp32", (COUNT,))


def test_files_that_are_no_weights(weights: Any, tmp_path: Path) -> None:
    path, offsets, _ = weights
    content = path.read_bytes()
    for damaged in (b"", b"short", b"\0" * 64, content[:4] + b"\7" + content[5:]):
        path.write_bytes(damaged)
        with pytest.raises(InputFileError, match="weight"):
            BlobFile.open(path)
    path.write_bytes(content[: offsets["fp32"] + 70])
    with pytest.raises(InputFileError, match="truncated"):
        BlobFile.open(path).tensor(offsets["fp32"], "fp32", (COUNT,))
    with pytest.raises(InputFileError, match="does not exist"):
        BlobFile.open(tmp_path / "none.bin")
    with pytest.raises(InputFileError):
        BlobFile.open(tmp_path)
