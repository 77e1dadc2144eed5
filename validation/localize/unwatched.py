"""Formats that show nothing inside an artifact: the stages alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ...exporter.graph import Graph
from ...targets.base import Signature, Target
from ...targets.watching import Stage, Trail

__all__ = ["stages_only"]


def stages_only(target: Target, graph: Graph, options: Any, artifact: Path, folder: Path) -> Trail:
    """The model converted again, and the artifact: is the conversion wrong, or the file?

    Raises:
        IsomorphError: it cannot be converted.
    """
    again = target.convert(graph, options, folder, "converted")
    signature = Signature(graph.inputs, graph.outputs)
    return Trail(
        graph,
        {},
        (
            Stage("converted", partial(target.open, again.path, signature=signature)),
            Stage("file", partial(target.open, artifact, signature=signature)),
        ),
    )
