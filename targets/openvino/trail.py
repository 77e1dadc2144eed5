"""From an OpenVINO model back to the nodes of the graph that it was converted from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..matching import matched
from ..watching import Stage, Trail
from .prepare import prepared
from .session import OpenVinoSession

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .target import OpenVinoOptions, OpenVinoTarget

__all__ = ["trail"]


def trail(
    target: OpenVinoTarget, graph: Graph, options: OpenVinoOptions, artifact: Path, scratch: Path
) -> Trail:
    """The frontend keeps some names; the others are found in a model that is converted again.

    "file" is the artifact with every value asked for, which keeps OpenVINO from fusing.
    """
    again = target.convert(graph, options, scratch, "converted")
    taken = _taken(graph)
    with OpenVinoSession(again.path, watched=True) as session:
        names = matched(taken, session)
    return Trail(
        taken,
        names,
        (
            Stage("converted", partial(OpenVinoSession, again.path, watched=True)),
            Stage("file", partial(OpenVinoSession, artifact, watched=True)),
        ),
    )


def _taken(graph: Graph) -> Graph:
    """The program that the frontend gets, which returns each value once."""
    program, places = prepared(graph)
    signature: Any = program.graph_signature
    inputs = tuple(signature.user_inputs)
    computed = [spec.arg.name for spec in signature.output_specs]
    outputs = tuple(computed[i] if i >= 0 else inputs[-1 - i] for i in places)
    return replace(graph, program=program, input_nodes=inputs, output_nodes=outputs)
