"""From a Core ML package back to the nodes of the graph that it was converted from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Signature
from ..matching import matched, with_program
from ..watching import Stage, Trail
from .failures import conversion_errors
from .prepare import prepared
from .quiet import hushed
from .session import CoreMlSession

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .options import CoreMlOptions
    from .target import CoreMlTarget

__all__ = ["trail"]


def trail(
    target: CoreMlTarget, graph: Graph, options: CoreMlOptions, artifact: Path, scratch: Path
) -> Trail:
    """Values are found in a package that is converted again; packages are evaluated, on macOS too.

    The graph is that which coremltools is first given, before what it turns out not to take is
    rewritten: such an operator is several of the package's.
    """
    again = target.convert(graph, options, scratch, "converted")
    with hushed(), conversion_errors():
        taken = with_program(graph, prepared(graph))
    with CoreMlSession(again.path, evaluated=True) as session:
        names = matched(taken, session)
    return Trail(
        taken,
        names,
        (
            Stage("converted", partial(CoreMlSession, again.path, evaluated=True)),
            # A package of another tool has names of its own.
            Stage(
                "file",
                partial(
                    CoreMlSession,
                    artifact,
                    signature=Signature(graph.inputs, graph.outputs),
                    evaluated=True,
                ),
            ),
        ),
    )
