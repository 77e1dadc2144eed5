"""Writes a module as `.pte`, runs the file, compares with eager."""

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
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget
from torch import Tensor, nn


class Written:
    """A module written as a `.pte` file."""

    def __init__(self, module: nn.Module, graph: Graph, artifact: Artifact) -> None:
        self.module, self.graph, self.artifact = module, graph, artifact
        self.path = artifact.path

    def error(self, *tensors: Tensor) -> float:
        """RMS error of the only output, relative to the RMS of the float64 truth."""
        names = [spec.name for spec in self.graph.inputs]
        with ExecuTorchTarget().open(self.path) as session:
            feed = {name: t.numpy() for name, t in zip(names, tensors, strict=True)}
            (found,) = session.run(feed).values()
        with torch.no_grad():
            truth = self.module.double()(*(t.double() for t in tensors)).numpy()
        return float(np.sqrt(np.mean((found - truth) ** 2) / np.mean(truth**2)))


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
        before = graph.fingerprint()
        artifact = ExecuTorchTarget().convert(
            graph, ExecuTorchOptions(**options), self._directory, stem
        )
        assert graph.fingerprint() == before
        return Written(module, graph, artifact)


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    return Writer(tmp_path)
