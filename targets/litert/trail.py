"""From a `.tflite` file back to the nodes of the graph that it was converted from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..matching import matched, with_program
from ..watching import Stage, Trail
from .prepare import prepared
from .session import LiteRtSession

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .target import LiteRtOptions, LiteRtTarget

__all__ = ["trail"]


def trail(
    target: LiteRtTarget, graph: Graph, options: LiteRtOptions, artifact: Path, scratch: Path
) -> Trail:
    """Values are found in a file that is converted again.

    Images lie in another order inside the file, so what is between two transposes has no node:
    it belongs to the group of operators that ends in a value which has one.
    """
    again = target.convert(graph, options, scratch, "converted")
    taken = with_program(graph, prepared(graph))
    with LiteRtSession(again.path) as session:
        names = matched(taken, session)
    return Trail(
        taken,
        names,
        (
            Stage("converted", partial(LiteRtSession, again.path, watched=True)),
            Stage("file", partial(LiteRtSession, artifact, watched=True)),
        ),
    )
