"""One walk through the graph: every value that the artifact shows is compared with the truth.

The truth is evaluated node by node beside float32 with noise, as for outputs. Where a runtime can,
each operator is also run alone on the truth's inputs: errors can heal downstream, or hide below
those that came from upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from ...errors import first_line
from ...exporter.graph import Graph
from ...targets.watching import Watching
from ..arrays import to_numpy
from ..cases import Case
from ..interpreter import AS_CAPTURED, TRUTH, Lane, Lockstep, Policy
from ..parity import as_given
from .measuring import Distance, distance
from .segments import Segment, SegmentEvaluator, segments_of

__all__ = ["Step", "Walk", "walk"]

Arrays = Mapping[str, NDArray[Any]]

# The noise that makes the floor of a value: as for outputs, plus one more direction, since the
# floor of a single operator comes from one case only.
_NOISE = (
    AS_CAPTURED,
    Policy("weights", weights=1),
    Policy("inputs", inputs=1),
    Policy("values", weights=1, inputs=1, key=1),
)

# Where a case's inputs are at a boundary they stay there, and what is computed from them moves.
_EXACT_NOISE = (
    AS_CAPTURED,
    Policy("weights", weights=1),
    Policy("values", weights=1, values=1, whole=True),
    Policy("values", weights=1, values=1, key=1, sign=-1, whole=True),
)


@dataclass(frozen=True)
class Step:
    """One value: `watched` on the artifact's own way, `alone` from the truth's inputs, and
    `effect`: the error it makes alone, in floors of the value on the way through the graph.

    inputs: nodes of the steps that it is computed from.
    """

    segment: Segment
    watched: Distance
    alone: Distance | None
    effect: Distance | None
    inputs: tuple[Node, ...]

    @property
    def node(self) -> Node:
        return self.segment.node


@dataclass(frozen=True)
class Walk:
    """Steps in graph order, the watched outputs, and what could not be done."""

    steps: tuple[Step, ...]
    outputs: Arrays
    notes: tuple[str, ...] = ()


def walk(
    graph: Graph,
    names: Mapping[str, str],
    case: Case,
    session: Any,
    half: str | None,
    *,
    done: Callable[[], None] = lambda: None,
) -> Walk:
    """Watch `session` on `case`, beside the truth of the legalised `graph`.

    Args:
        graph: as the converter took it.
        names: artifact's value -> node of `graph`.
        case: the inputs.
        session: a `Watching` session.
        half: "float16" or "bfloat16" where the artifact computes in it.
        done: told at each value.
    """
    values = session.values()
    segments = segments_of(graph, values, names)
    shown = [segment.value.name for segment in segments.values()]
    inputs = {name: as_given(to_numpy(value)) for name, value in case.inputs.items()}
    watched = session.run_watching(inputs, shown)
    noise = _EXACT_NOISE if case.noise == "exact" else _NOISE
    look = _Look(graph, segments, watched, inputs, session, half, noise, done)
    lanes = [Lane(case.name, policy, case.inputs) for policy in (TRUTH, *noise)]
    Lockstep(graph).run(lanes, look.observe)
    return Walk(tuple(look.steps), watched, tuple(dict.fromkeys(look.notes)))


class _Look:
    """Compares node after node while the truth is evaluated."""

    def __init__(
        self,
        graph: Graph,
        segments: Mapping[Node, Segment],
        watched: Arrays,
        inputs: Arrays,
        session: Watching,
        half: str | None,
        noise: Sequence[Policy],
        done: Callable[[], None],
    ) -> None:
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._segments = {node.name: segment for node, segment in segments.items()}
        self._watched = watched
        self._inputs = inputs
        self._session: Watching | None = session
        self._half = half
        self._noise = noise
        self._done = done
        self._evaluator = SegmentEvaluator(graph)
        by_name = {node.name: node for node in graph.program.graph_module.graph.nodes}
        self._truth: dict[Node, torch.Tensor] = {
            by_name[node]: torch.from_numpy(np.array(inputs[spec.name], copy=True))
            for node, spec in zip(graph.input_nodes, graph.inputs, strict=True)
            if spec.name in inputs
        }
        self._last_use = {
            node: segment.node
            for segment in segments.values()
            for node in self._evaluator.inputs(segment)
        }

    def observe(self, node: Node, values: Sequence[Any]) -> None:
        """What `Lockstep` tells: the truth first, then the noise."""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) < 2 or values[0] is None:
            return
        segment = self._segments.get(node.name)
        if segment is not None:
            self._compare(segment, to_numpy(tensors[0]), [to_numpy(t) for t in tensors[1:]])
        if node in self._last_use:  # rounded, as the artifact has it
            self._truth[node] = tensors[0].to(tensors[1].dtype).clone()
        for known in [k for k, user in self._last_use.items() if user is node]:
            self._truth.pop(known, None)

    def _compare(
        self, segment: Segment, truth: NDArray[Any], lanes: Sequence[NDArray[Any]]
    ) -> None:
        value = self._watched[segment.value.name]
        if value.shape != truth.shape:
            return  # a value of another meaning that has the name
        reached = distance(value, truth, lanes, self._half)
        alone, effect = self._alone(segment, truth, lanes)
        inputs = tuple(segment.given.values())
        self.steps.append(Step(segment, reached, alone, effect, inputs))
        self._done()

    def _alone(
        self, segment: Segment, truth: NDArray[Any], lanes: Sequence[NDArray[Any]]
    ) -> tuple[Distance | None, Distance | None]:
        """The segment run by itself; None where that cannot be."""
        needed = self._evaluator.inputs(segment)
        if self._session is None or any(node not in self._truth for node in needed):
            return None, None
        given = {node: self._truth[node] for node in needed}
        names = {name: node for name, node in segment.given.items() if node in self._truth}
        if len(names) < len(segment.given):
            return None, None
        try:
            feed = {name: as_given(to_numpy(self._truth[node])) for name, node in names.items()}
            got = self._session.replay(feed, [segment.value.name])[segment.value.name]
            runs = [self._evaluator.run(segment, given, p) for p in (TRUTH, *self._noise[:3])]
            right, *noise = [to_numpy(run) for run in runs]
        except NotImplementedError:
            self._session = None
            return None, None
        except Exception as error:  # noqa: BLE001 - a runtime may raise anything
            self.notes.append(f"{segment.node.name} could not be run alone: {first_line(error)}")
            return None, None
        alone = distance(got, right, noise, self._half)
        if right.dtype.kind in "iub" or right.shape != truth.shape:
            return alone, alone
        with np.errstate(invalid="ignore"):  # infinities on both sides
            usual = [right + (lane.astype(right.dtype) - truth) for lane in lanes]
        return alone, distance(got, right, [*noise, *usual], self._half)
