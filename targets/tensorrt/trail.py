"""From the network of a TensorRT engine back to the nodes of the graph it was made from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..matching import matched, with_program
from ..onnx.target import OnnxOptions, OnnxTarget
from ..watching import Stage, Trail
from .evaluating import NetworkSession
from .making import write_network
from .opening import open_rtx
from .products import RTX

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .options import RtxOptions

__all__ = ["trail"]


def trail(graph: Graph, options: RtxOptions, artifact: Path, scratch: Path) -> Trail:
    """Values are found in a network that is parsed from an ONNX file written again.

    "file" is the network that the engine was built from, evaluated; what the builder makes of it
    shows on its GPU alone, as "runtime".
    """
    network = write_network(graph, options.opset, options.opt, scratch, "converted.rtx")
    onnx = OnnxOptions(opset=options.opset, dialect="tensorrt")
    taken = with_program(graph, OnnxTarget().translated(graph, onnx))
    again = partial(NetworkSession, RTX, network.onnx.path, None, {})
    with again() as session:
        names = matched(taken, session)
    return Trail(
        taken,
        names,
        (Stage("converted", again), Stage("file", partial(open_rtx, artifact, "cpu", None))),
    )
