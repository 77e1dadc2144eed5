"""Writes a module as a LiteRT file, runs it, compares with eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
from isomorph.exporter.graph import Graph
from isomorph.targets.base import Artifact, Signature
from isomorph.targets.litert.target import LiteRtOptions, LiteRtTarget
from torch import nn

pytest.importorskip("litert_torch", reason="needs isomorph[litert]")
pytest.importorskip("ai_edge_litert", reason="needs isomorph[litert]")


class Written:
    """A module written as `.tflite`."""

    def __init__(self, graph: Graph, artifact: Artifact, args: tuple[Any, ...], module: nn.Module):
        self.graph, self.artifact, self.args, self.module = graph, artifact, args, module
        self.path = artifact.path

    @property
    def signature(self) -> Signature:
        return Signature(self.graph.inputs, self.graph.outputs)

    def run(self) -> dict[str, np.ndarray]:
        """Outputs for the tensors that the module was traced with."""
        feed = {s.name: a.numpy() for s, a in zip(self.graph.inputs, self.args, strict=True)}
        with LiteRtTarget().open(self.path, signature=self.signature) as session:
            return session.run(feed)

    def assert_computes(self, tolerance: float = 1e-5) -> None:
        """Outputs equal eager's in dtype, shape and value."""
        expected = self.module(*(a.clone() for a in self.args))
        outputs = expected if isinstance(expected, tuple) else (expected,)
        for wanted, found in zip(outputs, self.run().values(), strict=True):
            wanted = wanted.detach().numpy()
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


class Writer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, module: nn.Module | Any, *args: Any, stem: str = "model") -> Written:
        module = (module if isinstance(module, nn.Module) else Function(module)).eval()
        graph = isomorph.trace(module, args=args)
        before = graph.fingerprint()
        artifact = LiteRtTarget().convert(graph, LiteRtOptions(), self._directory, stem)
        assert graph.fingerprint() == before
        return Written(graph, artifact, args, module)


class Function(nn.Module):
    """A function of up to two tensors as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function
        if function.__code__.co_argcount == 2:
            self.forward = self._two  # type: ignore[method-assign]

    def forward(self, x: Any) -> Any:
        return self._function(x)

    def _two(self, x: Any, y: Any) -> Any:
        return self._function(x, y)


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    return Writer(tmp_path)
