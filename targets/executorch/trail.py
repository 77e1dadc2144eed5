"""From a `.pte` file back to the nodes of the graph that it was lowered from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..matching import matched, with_program
from ..watching import Stage, Trail
from .prepare import prepared
from .session import ExecuTorchSession

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .target import ExecuTorchOptions, ExecuTorchTarget

__all__ = ["trail"]


def trail(
    target: ExecuTorchTarget,
    graph: Graph,
    options: ExecuTorchOptions,
    artifact: Path,
    scratch: Path,
) -> Trail:
    """Values are found in a file that is lowered again.

    What a delegated part holds is one group of operators: the runtime shows what it gives alone.
    """
    again = target.convert(graph, options, scratch, "converted")
    taken = with_program(graph, prepared(graph, options.backend))
    with ExecuTorchSession(again.path) as session:
        names = matched(taken, session)
    return Trail(
        taken,
        names,
        (
            Stage("converted", partial(ExecuTorchSession, again.path)),
            Stage("file", partial(ExecuTorchSession, artifact)),
        ),
    )
