"""Correct artifacts and evaluations of one model: none of them may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from isomorph.errors import IsomorphError
from isomorph.exporter.graph import Graph
from isomorph.targets import registry
from isomorph.targets.base import Evidence, Signature
from isomorph.targets.onnx.target import OnnxTarget
from numpy.typing import NDArray
from torch import nn

__all__ = ["EagerSession", "correct_artifacts"]

Arrays = Mapping[str, NDArray[Any]]
Opened = AbstractContextManager[Any]


class EagerSession:
    """The module itself, called in another way that is as right."""

    readings: tuple[str, ...] = ()

    def __init__(
        self,
        module: nn.Module,
        graph: Graph,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        split: bool = False,
    ) -> None:
        self._module, self._around, self._split = module, around, split
        self._call = graph.call
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.evidence = Evidence("executed", "torch", torch.__version__, "cpu")

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        with self._around():
            if not self._split:
                return self._named(tensors)
            count = len(next(iter(tensors.values())))
            rows = [
                self._named({n: t[i : i + 1] for n, t in tensors.items()}) for i in range(count)
            ]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _named(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
        values = self._call.call(self._module, tensors)
        return {name: value.contiguous().numpy() for name, value in values.items()}

    def close(self) -> None:
        """Nothing to give back."""


def correct_artifacts(
    graph: Graph, module: nn.Module, artifact: Path, scratch: Path, formats: Sequence[str]
) -> Iterator[tuple[str, Opened | str]]:
    """What made it, and the session; or why there is none.

    Args:
        graph: the captured model.
        module: as it was captured.
        artifact: the ONNX file.
        scratch: an empty folder.
        formats: others to convert to.
    """
    onnx = OnnxTarget()
    yield "ONNX Runtime", onnx.open(artifact)
    yield "ONNX Runtime, not optimised", onnx.open(artifact, optimized=False)
    for name in formats:
        yield from _converted(name, graph, scratch)
    yield "eager, 4 threads", nullcontext(EagerSession(module, graph, _threads))
    if any(len(spec.shape) == 4 for spec in graph.inputs):
        yield "eager, channels_last", nullcontext(EagerSession(_ChannelsLast(module), graph))
    if _is_batched(graph):
        yield "eager, one by one", nullcontext(EagerSession(module, graph, split=True))


def _converted(name: str, graph: Graph, scratch: Path) -> Iterator[tuple[str, Opened | str]]:
    target = registry.get(name)
    label = {"openvino": "OpenVINO", "coreml": "Core ML, evaluated"}[name]
    try:
        made = target.convert(graph, target.options_type(), scratch, "model")
        session: Any = target.open(made.path, "cpu", Signature(graph.inputs, graph.outputs))
    except IsomorphError as error:
        yield label, error.message
        return
    yield label, session


class _ChannelsLast(nn.Module):
    """Gives a module its images strided as they lie in cameras."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._inner = module

    def forward(self, **inputs: torch.Tensor) -> Any:
        return self._inner(
            **{
                name: value.to(memory_format=torch.channels_last) if value.ndim == 4 else value
                for name, value in inputs.items()
            }
        )


@contextmanager
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_batched(graph: Graph) -> bool:
    """Whether the first axis of everything is the batch."""
    sizes = {str(spec.shape[0]) if spec.shape else "" for spec in (*graph.inputs, *graph.outputs)}
    return len(sizes) == 1 and "" not in sizes
