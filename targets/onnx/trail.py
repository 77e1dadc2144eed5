"""From an ONNX file back to the nodes of the graph that it was written from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..watching import Stage, Trail

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ...exporter.graph import Graph
    from .target import OnnxOptions, OnnxTarget

__all__ = ["legalised", "trail"]


def trail(
    target: OnnxTarget,
    graph: Graph,
    options: OnnxOptions,
    artifact: Path,
    scratch: Path,
) -> Trail:
    """torch names a value after the node that it is; outputs have the user's names.

    The file is written again, without the libraries' optimisations and with them.
    """
    plain = target.convert(graph, replace(options, optimize=False), scratch, "converted")
    stages = [Stage("converted", partial(target.open, plain.path, optimized=False))]
    if options.optimize:
        again = target.convert(graph, options, scratch, "optimised")
        stages.append(Stage("optimised", partial(target.open, again.path, optimized=False)))
    stages.append(Stage("file", partial(target.open, artifact, optimized=False)))
    taken = legalised(graph, target.translated(graph, options))
    names = {
        node.name: node.name
        for node in taken.program.graph.nodes
        if node.op == "call_function" and node.name not in taken.output_nodes
    }
    outputs = zip((spec.name for spec in plain.outputs), taken.output_nodes, strict=True)
    return Trail(taken, {**names, **dict(outputs)}, tuple(stages))


def legalised(graph: Graph, program: ExportedProgram) -> Graph:
    """`graph` with the program that a converter took, whose nodes may have other names."""
    signature: Any = program.graph_signature
    return replace(
        graph,
        program=program,
        input_nodes=tuple(signature.user_inputs),
        output_nodes=tuple(spec.arg.name for spec in signature.output_specs),
    )
