"""Is the operator that was broken the one that localisation names?"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import onnx
from isomorph.exporter.graph import Graph
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.targets.watching import Stage, Trail
from isomorph.validation.expected import Reference
from isomorph.validation.localize import localize
from isomorph.validation.report import Report

from .faults import Fault

__all__ = ["Locator"]


class _Remembering(OnnxTarget):
    """Converts a model again once, not for every fault."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Trail | None = None

    def trail(self, graph: Graph, options: OnnxOptions, artifact: Path, scratch: Path) -> Trail:
        if self._known is None:
            self._known = super().trail(graph, options, artifact, self._folder)
        file = Stage("file", partial(self.open, artifact, optimized=False))
        before = tuple(stage for stage in self._known.stages if stage.name != "file")
        return replace(self._known, stages=(*before, file))


class Locator:
    """Localises faults of one model.

    Args:
        graph, reference: of the model.
        data: the correct file.
    """

    def __init__(self, graph: Graph, reference: Reference, data: bytes) -> None:
        self._graph, self._reference = graph, reference
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._target: Any = _Remembering(Path(self._folder.name))
        self._consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in onnx.load_from_string(data).graph.node:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def close(self) -> None:
        """Remove what was converted."""
        self._folder.cleanup()

    def locate(self, fault: Fault, report: Report, session: Any, file: Path) -> tuple[str, str]:
        """One of "single", "group", "wrong" and "none", and what was named."""
        options = OnnxOptions()
        found = localize(self._graph, self._reference, report, session, self._target, options, file)
        if found.culprit is None:
            return "none", "; ".join(found.notes)
        trail = self._target.trail(self._graph, options, file, file.parent)
        culprit = found.culprit
        summary = f"{found.stage}: {', '.join(culprit.operators)} ({culprit.artifact_node})"
        expected = self._holders(fault, trail)
        if not expected & set(culprit.operators):
            return "wrong", f"{summary}, not {', '.join(sorted(expected))}"
        return "single" if len(culprit.operators) == 1 else "group", summary

    def _holders(self, fault: Fault, trail: Trail) -> set[str]:
        """Operators of the graph that the broken node is a part of: the next values with a name."""
        names = trail.values
        operators = {node.name: node for node in trail.graph.program.graph_module.graph.nodes}
        found: set[str] = set()
        pending, seen = list(fault.node_outputs), set()
        while pending:
            name = pending.pop()
            if name in seen or not name:
                continue
            seen.add(name)
            if name in names:
                operator = operators[names[name]]
                if operator.target is getitem:  # one of the results of an operator
                    operator = operator.all_input_nodes[0]
                found.add(operator.name)
            else:
                pending += [o for node in self._consumers.get(name, ()) for o in node.output]
        return found
