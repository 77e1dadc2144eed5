"""A captured module with its cases and reference, and sessions that stand for runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.graph import Graph
from isomorph.exporter.signature import parse_dynamic
from isomorph.targets.base import Evidence
from isomorph.validation import cases, parity, reference
from isomorph.validation.report import Report

Arrays = dict[str, np.ndarray]


class EagerSession:
    """A session that computes with a torch module, and may spoil what comes out."""

    evidence = Evidence("executed", "eager", "0", "cpu")

    def __init__(
        self, graph: Graph, module: torch.nn.Module, spoil: Callable[[Arrays], Arrays] | None
    ) -> None:
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._graph, self._module, self._spoil = graph, module, spoil

    def __enter__(self) -> EagerSession:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        tensors = {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}
        outputs = self._graph.call.call(self._module, tensors)
        arrays = {name: value.detach().numpy().copy() for name, value in outputs.items()}
        return self._spoil(arrays) if self._spoil else arrays


@dataclass
class Trial:
    """Everything that is known before an artifact is judged."""

    module: torch.nn.Module
    graph: Graph
    cases: tuple[cases.Case, ...]
    reference: reference.Reference

    def judge(
        self,
        module: torch.nn.Module | None = None,
        spoil: Callable[[Arrays], Arrays] | None = None,
    ) -> Report:
        """Judge a session that computes with `module` (default: the eager one itself)."""
        session = EagerSession(self.graph, module or self.module, spoil)
        return parity.judge(self.graph, self.reference, session)


@pytest.fixture(scope="session")
def capture_of() -> Callable[..., Any]:
    """Captures a module on example arguments; `dynamic` takes `--dynamic` texts."""

    def make(module: torch.nn.Module, *args: Any, dynamic: Sequence[str] = ()) -> Any:
        return capture(
            module.eval(),
            ExampleCall(args, {}, True),
            dynamic=[parse_dynamic(text) for text in dynamic],
        )

    return make


@pytest.fixture(scope="session")
def trial_of(capture_of) -> Callable[..., Trial]:
    """Captures a module, generates its cases and computes the reference."""

    def make(
        module: torch.nn.Module,
        *args: Any,
        dynamic: Sequence[str] = (),
        only: Sequence[str] = (),
        eager: torch.nn.Module | None = None,
    ) -> Trial:
        captured = capture_of(module, *args, dynamic=dynamic)
        chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True)
        chosen = tuple(c for c in chosen if not only or c.name in only)
        known = reference.compute(captured.graph, eager or module, chosen)
        return Trial(module, captured.graph, chosen, known)

    return make


class _Forward(torch.nn.Module):
    """A module around a function of (module, inputs), with a weight and two buffers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(3, generator=generator))
        self.register_buffer("mask", torch.tensor([0.0, float("-inf"), 1.0]))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


@pytest.fixture(scope="session")
def module_of() -> Callable[[Callable[..., Any]], torch.nn.Module]:
    """Makes a module whose forward is a function of (module, *inputs)."""
    return lambda function: _Forward(function).eval()
