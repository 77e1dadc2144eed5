"""Weights on disk: streamed, shared, hashed; whatever their layout."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import isomorph
import onnx
import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.targets.onnx import storage
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from torch import Tensor, nn


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 32)
        self.head = nn.Linear(32, 500, bias=False)
        # Another parameter on the same memory: what loading a tied checkpoint leaves.
        self.head.weight = nn.Parameter(self.embedding.weight.detach())

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.head(self.embedding(ids))
        return hidden


class Layouts(nn.Module):
    """Weights that are not contiguous, and of dtypes that protobuf stores in odd ways."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turned", torch.randn(40, 30).t())
        self.register_buffer("spread", torch.randn(30, 1).expand(30, 40))
        self.register_buffer("sliced", torch.randn(30, 80)[:, ::2])
        self.register_buffer("flags", torch.rand(30, 40) > 0.5)
        self.register_buffer("halves", torch.randn(30, 40).half())
        self.register_buffer("numbers", torch.arange(1200).reshape(30, 40))
        self.register_buffer("empty", torch.zeros(0, 40))

    def forward(self, x: Tensor) -> Any:
        turned, spread, sliced, flags, halves, numbers, empty = self.buffers()
        x = x + turned + spread + sliced + halves.float() + numbers
        return torch.where(flags, x, -x), torch.cat([x, empty])


IDS = torch.tensor([[1, 2, 49]])


@pytest.mark.parametrize("where", ["never", "always"])
def test_file_loads_and_computes(where: str, write: Any) -> None:
    x = torch.randn(30, 40)

    written = write(Layouts(), x, external_data=where)

    written.assert_computes((x,))
    onnx.checker.check_model(str(written.path), full_check=True)
    assert len(written.artifact.files) == (2 if where == "always" else 1)


class Weighted(nn.Module):
    def __init__(self, **weights: Tensor) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return [(x @ weight).abs() + (x @ weight).real for weight in self.buffers()]


@pytest.mark.parametrize("size", [4, 40])
def test_lazily_negated_and_conjugated_weights_are_written_by_value(size: int, write: Any) -> None:
    """torch marks such views and leaves the bytes as they were."""
    weight = torch.randn(size, size, dtype=torch.complex64)
    model = Weighted(negated=torch._neg_view(weight.real.clone()), imaginary=weight.conj().imag)
    x = torch.randn(size, size)

    written = write(model, x)

    written.assert_computes((x,))
    assert model.negated.is_neg()


def test_sparse_weight_is_refused_by_name(write: Any) -> None:
    model = Weighted(mixing=torch.eye(40).to_sparse_csr())

    with pytest.raises(ConversionError, match="mixing is a sparse"):
        write(model, torch.randn(40, 40))


@pytest.mark.parametrize("where", ["never", "always"])
def test_hashes_are_those_of_the_files(where: str, write: Any) -> None:
    artifact = write(Tied(), IDS, external_data=where).artifact

    assert set(artifact.hashes) == set(artifact.files)
    for path, digest in artifact.hashes.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("where", ["never", "always"])
def test_tied_weight_is_stored_once(where: str, write: Any) -> None:
    written = write(Tied(), IDS, external_data=where)

    size = sum(path.stat().st_size for path in written.artifact.files)
    assert 500 * 32 * 4 <= size < 2 * 500 * 32 * 4
    written.assert_computes((IDS,))


def test_small_model_is_one_file(write: Any) -> None:
    artifact = write(Tied(), IDS).artifact

    assert artifact.files == (artifact.path,)


def test_large_model_gets_external_data(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "INLINE_LIMIT", 1000)

    artifact = write(Tied(), IDS).artifact

    assert {path.name for path in artifact.files} == {"model.onnx", "model.onnx.data"}


def test_external_data_begins_at_pages(write: Any) -> None:
    artifact = write(Layouts(), torch.randn(30, 40), external_data="always").artifact

    model = onnx.load(artifact.path, load_external_data=False)
    offsets = [
        int(entry.value)
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert offsets
    assert all(offset % 4096 == 0 for offset in offsets)


def test_linear_weight_is_stored_as_it_is_read(write: Any) -> None:
    """No `Transpose` for which the optimiser or the runtime would copy every weight."""
    x = torch.randn(2, 3, 128)
    written = write(nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)), x)

    graph = onnx.load(written.path).graph
    assert "Transpose" not in [node.op_type for node in graph.node]
    assert {"0.weight", "2.weight"} <= {weight.name for weight in graph.initializer}
    written.assert_computes((x,))


def test_convert_leaves_the_graph_and_its_weights_alone(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = isomorph.trace(model, args=(torch.randn(1, 3, 8, 8),))
    fingerprint = graph.fingerprint()

    OnnxTarget().convert(graph, OnnxOptions(), tmp_path, "model")

    assert graph.fingerprint() == fingerprint
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_failing_write_leaves_no_thread_behind(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage, "_chunks", fail)
    threads = threading.active_count()

    with pytest.raises(OSError, match="No space"):
        write(Tied(), IDS)

    assert threading.active_count() == threads


def test_a_short_write_of_the_system_is_continued(tmp_path: Path) -> None:
    """`write` may take less than it is given, as a signal or a nearly full disk makes it."""

    class Short:
        def __init__(self, file: Any) -> None:
            self._file = file

        def write(self, data: memoryview) -> int:
            return self._file.write(data[:3])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    with storage._HashingWriter(tmp_path / "file") as out:
        out._file = Short(out._file)
        out.write(b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"
    assert out.hexdigest() == hashlib.sha256(b"0123456789").hexdigest()
