"""A script with one operator, its real inputs and both answers."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from ...exporter.graph import Graph
from ..arrays import to_numpy
from ..cases import Case
from ..interpreter import TRUTH, Lane, Lockstep
from ..parity import as_given
from ..report.localization import Culprit
from .segments import Segment, SegmentEvaluator

__all__ = ["write_reproduction"]

_SCRIPT = '''"""{title}

Run it with torch and numpy. {data} beside it holds the operator's inputs, what must come out
(float64), and what {artifact} gave for them.
"""

from pathlib import Path

import numpy as np
import torch

data = np.load(Path(__file__).with_name("{data}"))


def right(wide):
    """The operator in torch, in float64 where `wide` is set."""

    def load(name):
        tensor = torch.from_numpy(data[name])
        return tensor.double() if wide and tensor.is_floating_point() else tensor

{body}
    return {result}


def off(values, truth):
    error = np.abs(values.astype(np.float64) - truth.astype(np.float64))
    size = np.sqrt(np.mean(np.square(truth.astype(np.float64))))
    return f"largest error {{error.max():.3e}}, of an output whose RMS is {{size:.3e}}"


truth = right(wide=True).numpy()
print("{operator}")
print("  torch float32:", off(right(wide=False).numpy(), truth))
print("  artifact:     ", off(data["artifact"], truth))
'''


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
    arrays = {node.name: to_numpy(tensor) for node, tensor in given.items()}
    weights = evaluator.weights(segment.nodes)
    arrays |= {node.name: to_numpy(tensor.detach()) for node, tensor in weights.items()}
    lines = [f"{node.name} = load({node.name!r})" for node in (*given, *weights)]
    lines += [f"{node.name} = {_call(node)}" for node in segment.nodes]
    data = path.with_suffix(".npz")
    with data.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, artifact=got)
    where = ", ".join(part for part in (culprit.module, culprit.location) if part)
    operator = " + ".join(culprit.targets)
    path.write_text(
        _SCRIPT.format(
            title=f"{operator}{f' at {where}' if where else ''} is wrong in the artifact.",
            data=data.name,
            artifact=f"the artifact's node {culprit.artifact_node}"
            if culprit.artifact_node
            else "the converted operator",
            body=textwrap.indent("\n".join(lines), "    "),
            result=segment.node.name,
            operator=operator,
        ),
        encoding="utf-8",
    )
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


def _call(node: Node) -> str:
    """Source of one operator of the graph."""
    arguments = [*(_shown(a) for a in node.args)]
    arguments += [f"{key}={_shown(value)}" for key, value in node.kwargs.items()]
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        namespace = target.namespace
        name = f"torch.ops.{namespace}.{target._schema.name.split('::')[1]}.{target._overloadname}"
    elif getattr(target, "__name__", "") == "getitem":
        return f"{arguments[0]}[{arguments[1]}]"
    else:
        name = f"{target.__module__.lstrip('_')}.{target.__name__}"
    return f"{name}({', '.join(arguments)})"


def _shown(value: Any) -> str:
    if isinstance(value, Node):
        return value.name
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)
