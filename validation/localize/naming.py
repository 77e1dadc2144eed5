"""Names for what was found: operators, modules, the user's lines, the artifact's nodes."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from ...exporter.graph import node_origin
from ...exporter.lines import user_frame
from ...targets.watching import Value
from ..report.localization import Culprit
from .walking import Step

__all__ = ["culprit_of", "operator_of", "operators_of", "region_of", "summary_of"]

_STAGES = {
    "eager": "the eager model itself",
    "exported program": "the capture (the exported program differs from the module)",
    "legalised": "Isomorph's own rewriting of operators",
    "converted": "the converter",
    "optimised": "the libraries' optimisation of what was converted",
    "file": "the file (what is converted now is right: it was changed, or made by other versions)",
    "runtime": "the runtime (it is right when it is run as plainly as it can be)",
}


def culprit_of(step: Step, before: float, value: Value) -> Culprit:
    """One operator, or those that the artifact computes as one."""
    nodes = [node for node in step.segment.nodes if node.op == "call_function"] or [step.node]
    shown = [node for node in nodes if not _is_bookkeeping(node)] or nodes
    alone = None if step.alone is None else step.alone.ratio
    return _culprit(shown, value, before, step.watched.ratio, alone)


def operator_of(nodes: Sequence[Node], alone: float) -> Culprit:
    """An operator of which no more is known than that it is wrong when it is converted alone."""
    shown = [node for node in nodes if not _is_bookkeeping(node)] or list(nodes)
    return _culprit(shown, Value("", "", "", ()), None, None, alone)


def region_of(steps: Sequence[Step]) -> Culprit:
    """The operators that a runtime fuses, wrongly."""
    nodes = [
        node
        for step in steps
        for node in step.segment.nodes
        if node.op == "call_function" and not _is_bookkeeping(node)
    ]
    first, last = steps[0], steps[-1]
    return _culprit(
        list(dict.fromkeys(nodes)) or [last.node],
        last.segment.value,
        first.watched.ratio,
        None,
        None,
    )


def _culprit(
    nodes: Sequence[Node],
    value: Value,
    before: float | None,
    after: float | None,
    alone: float | None,
) -> Culprit:
    """The place is that of the last operator which the user's code has a line for."""
    places = [(node, node_origin(node)) for node in nodes]
    told = [(node, origin) for node, origin in places if origin.location] or places
    node, origin = told[-1]
    frame = user_frame(node.meta.get("stack_trace") or "")
    return Culprit(
        operators=tuple(n.name for n in nodes),
        targets=tuple(str(n.target) for n in nodes),
        module=origin.module,
        location=origin.location,
        source="" if frame is None else frame.text,
        artifact_node=value.node,
        artifact_operator=value.operator,
        before=before,
        after=after,
        alone=alone,
    )


def _is_bookkeeping(node: Node) -> bool:
    """Parts of tuples and sizes, which nobody would call an operator."""
    return "getitem" in str(node.target) or "sym_size" in str(node.target)


def operators_of(targets: Sequence[str]) -> str:
    """Operators in one line."""
    return " + ".join(targets)


def summary_of(stage: str, culprit: Culprit | None) -> str:
    """One sentence."""
    came = f"it came in by {_STAGES.get(stage, stage)}"
    if culprit is None:
        return f"no operator was found; {came}"
    what = " + ".join(target.removeprefix("aten.") for target in culprit.targets)
    where = ", ".join(part for part in (culprit.module, culprit.location) if part)
    node = f"{culprit.artifact_operator} {culprit.artifact_node}".strip()
    return (
        f"first wrong: {what}"
        + (f" ({where})" if where else "")
        + (f", node {node}" if node else "")
        + f"; {came}"
    )
