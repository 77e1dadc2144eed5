"""Models on their way into a package and out again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.graph import Graph
from isomorph.exporter.signature import parse_dynamic_entry
from isomorph.targets.base import Artifact, Signature
from isomorph.targets.coreml.options import CoreMlOptions
from isomorph.targets.coreml.target import CoreMlTarget


class Calling(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any], names: str = "") -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass
class Written:
    """A graph, what was made of it, and the session on that."""

    graph: Graph
    artifact: Artifact

    def open(self):
        signature = Signature(self.artifact.inputs, self.artifact.outputs)
        return CoreMlTarget().open(self.artifact.path, signature=signature)

    def spec(self):
        from isomorph.targets.coreml.storage import read_spec

        return read_spec(self.artifact.path)

    def operators(self) -> list[str]:
        function = self.spec().mlProgram.functions["main"]
        block = function.block_specializations[function.opset]
        return [item.type for item in block.operations if item.type != "const"]

    def demand_right(self, *args: torch.Tensor, tolerance: float = 1e-6) -> None:
        """The package computes what the graph computes on these inputs."""
        inputs = dict(zip((spec.name for spec in self.graph.inputs), args, strict=True))
        wanted = self.graph.run(inputs)
        with self.open() as session:
            found = session.run({name: value.numpy() for name, value in inputs.items()})
        assert list(found) == list(wanted)
        for name, value in wanted.items():
            assert found[name].dtype == value.numpy().dtype, name
            assert found[name].shape == tuple(value.shape), name
            np.testing.assert_allclose(found[name], value.numpy(), tolerance, tolerance, str(name))


def graph_of(model: Any, *args: torch.Tensor, **dynamic: str) -> Graph:
    """`dynamic` maps `NAME_AXIS` to a dim, as in `x_0="batch:1..8"`."""
    module = model if isinstance(model, torch.nn.Module) else Calling(model)
    requests = [
        parse_dynamic_entry(".".join(key.rsplit("_", 1)), text) for key, text in dynamic.items()
    ]
    return capture(module.eval(), ExampleCall(args, {}, True), dynamic=requests).graph


@pytest.fixture
def captured():
    return graph_of


@pytest.fixture
def write(tmp_path: Path):
    """Capture and convert: `write(model, *args, options=..., x_0="batch:1..8")`."""

    def written(
        model: Any, *args: torch.Tensor, options: CoreMlOptions | None = None, **dynamic: str
    ) -> Written:
        graph = model if isinstance(model, Graph) else graph_of(model, *args, **dynamic)
        count = len(list(tmp_path.iterdir()))
        artifact = CoreMlTarget().convert(
            graph, options or CoreMlOptions(), tmp_path, f"model{count}"
        )
        return Written(graph, artifact)

    return written
