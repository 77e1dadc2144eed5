"""Writes a module as ONNX, runs the file on ONNX Runtime, compares with eager."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.exporter.graph import Graph
from isomorph.targets.base import Artifact
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from torch import Tensor, nn


class Written:
    """A module written as ONNX."""

    def __init__(self, module: nn.Module, graph: Graph, artifact: Artifact) -> None:
        self.module, self.graph, self.artifact = module, graph, artifact
        self.path = artifact.path

    def assert_computes(self, args: tuple[Any, ...], tolerance: float = 1e-5) -> None:
        """Outputs equal eager's: dtype, shape, NaN and infinity exactly, values within RMS."""
        leaves = torch.utils._pytree.tree_leaves((args, {}))
        named = {
            name: leaf
            for name, leaf in zip(self.graph.call.input_leaves, leaves, strict=True)
            if isinstance(name, str)
        }
        expected = self.graph.call.call(self.module, {n: v.clone() for n, v in named.items()})
        with OnnxTarget().open(self.path) as session:
            found = session.run({name: value.contiguous().numpy() for name, value in named.items()})
        for name, output in zip(expected, self.artifact.outputs, strict=True):
            assert_close(name, expected[name], found[output.name], tolerance)


def assert_close(name: str, expected: Tensor, found: np.ndarray, tolerance: float) -> None:
    wanted = expected.detach().contiguous().numpy()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), finite, err_msg=name)
    np.testing.assert_array_equal(found[~finite], wanted[~finite], err_msg=name)
    scale = np.sqrt(np.mean(np.square(wanted[finite], dtype=np.float64))) if finite.any() else 0
    np.testing.assert_allclose(
        found[finite], wanted[finite], rtol=tolerance, atol=tolerance * scale, err_msg=name
    )


class Writer:
    """Captures modules and writes them into a directory of the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(
        self,
        module: nn.Module,
        *args: Any,
        dynamic: Mapping[str, str] | None = None,
        stem: str = "model",
        **options: Any,
    ) -> Written:
        module = module.eval()
        graph = isomorph.trace(module, args=args, dynamic=dynamic)
        artifact = OnnxTarget().convert(graph, OnnxOptions(**options), self._directory, stem)
        return Written(module, graph, artifact)


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    return Writer(tmp_path)
