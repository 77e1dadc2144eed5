"""A script with one operator, its real inputs and both answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from ...exporter.graph import Graph
from ..arrays import to_numpy
from ..cases import Case
from ..interpreter import AS_CAPTURED, TRUTH, Lane, Lockstep
from ..parity import as_given
from ..report.localization import Culprit
from .script import local_name, script_of, unknown_to_torch
from .segments import Segment, SegmentEvaluator

__all__ = ["write_reproduction"]


def write_reproduction(
    path: Path, graph: Graph, segment: Segment, case: Case, session: Any, culprit: Culprit
) -> str | None:
    """Write `path` and `path` with the suffix .npz; the script's name, or None if it cannot be.

    Raises:
        OSError: the folder cannot be written.
    """
    evaluator = SegmentEvaluator(graph)
    needed = evaluator.inputs(segment)
    given = _truth_of(graph, case, needed)
    if len(given) < len(needed):
        return None
    feed = {n: as_given(to_numpy(given[v])) for n, v in segment.given.items() if v in given}
    try:
        got = session.replay(feed, [segment.value.name])[segment.value.name]
    except NotImplementedError:
        return None
    tensors = {**given, **evaluator.weights(segment.nodes)}
    arrays = {local_name(node): to_numpy(tensor.detach()) for node, tensor in tensors.items()}
    if unknown_to_torch(segment):
        arrays["truth"] = to_numpy(evaluator.run(segment, given, TRUTH))
        arrays["float32"] = to_numpy(evaluator.run(segment, given, AS_CAPTURED))
    data = path.with_suffix(".npz")
    with data.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, artifact=got)
    script = script_of(segment, tuple(tensors), data.name, culprit)
    path.write_text(script, encoding="utf-8")
    return path.name


def _truth_of(graph: Graph, case: Case, wanted: tuple[Node, ...]) -> dict[Node, torch.Tensor]:
    """The truth's values, rounded as the graph has them."""
    found: dict[Node, torch.Tensor] = {}
    by_input = dict(zip(graph.input_nodes, (s.name for s in graph.inputs), strict=True))
    for node in wanted:
        if node.name in by_input:
            found[node] = case.inputs[by_input[node.name]].contiguous()

    def observe(node: Node, values: Any) -> None:
        if node in wanted and isinstance(values[0], torch.Tensor):
            dtype = node.meta["val"].dtype
            found[node] = values[0].to(dtype).clone()

    Lockstep(graph).run([Lane(case.name, TRUTH, case.inputs)], observe)
    return found
