"""Evaluates lanes of many cases, as many at once as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ..exporter.graph import Graph
from ..exporter.signature import Dim
from .arrays import to_numpy
from .cases import Case
from .cost import CostModel
from .interpreter import Lane, LaneError, Lockstep

__all__ = ["LaneRunner"]

Arrays = dict[str, NDArray[Any]]

# Lanes are evaluated together as long as their activations stay below this.
_LANES_BYTES = 256 * 2**20


class LaneRunner:
    """Evaluates one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lockstep = Lockstep(graph)
        self._cost = CostModel(graph)

    def groups(self, cases: Sequence[Case], lanes: int) -> Iterator[list[Case]]:
        """Consecutive cases of which `lanes` lanes each fit into memory together."""
        group: list[Case] = []
        total = 0.0
        for case in cases:
            size = lanes * self._lane_bytes(case)
            if group and total + size > _LANES_BYTES:
                yield group
                group, total = [], 0.0
            group.append(case)
            total += size
        if group:
            yield group

    def run(
        self, lanes: Sequence[Lane], cases: Mapping[str, Case]
    ) -> Iterator[tuple[Lane, Arrays | LaneError]]:
        """Every lane's outputs by name, or why it stopped; `cases` by name."""
        batch: list[Lane] = []
        total = 0.0
        for lane in lanes:
            size = self._lane_bytes(cases[lane.case]) * (2 if lane.policy.wide else 1)
            if batch and total + size > _LANES_BYTES:
                yield from self._run_batch(batch)
                batch, total = [], 0.0
            batch.append(lane)
            total += size
        if batch:
            yield from self._run_batch(batch)

    def run_one(self, lane: Lane) -> Arrays | LaneError:
        """One lane by itself."""
        return next(self._run_batch([lane]))[1]

    def _run_batch(self, batch: Sequence[Lane]) -> Iterator[tuple[Lane, Arrays | LaneError]]:
        for lane, result in zip(batch, self._lockstep.run(batch), strict=True):
            if isinstance(result, LaneError):
                yield lane, result
            else:
                yield lane, {name: to_numpy(value) for name, value in result.items()}

    def _lane_bytes(self, case: Case) -> float:
        sizes = {
            size.name: case.inputs[spec.name].shape[axis]
            for spec in self._graph.inputs
            for axis, size in enumerate(spec.shape)
            if isinstance(size, Dim)
        }
        return self._cost.at(sizes).peak_bytes
