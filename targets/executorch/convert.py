"""A `Graph` as the bytes of an ExecuTorch program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...exporter.graph import Graph
from ..unsupported import cannot_express
from .kernels import lacking
from .prepare import (
    edge_config,
    lowering,
    partitioners,
    prepared,
    require_border,
    require_fixed_steps,
)
from .pte import SIGNATURE_METHOD

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager

__all__ = ["to_executorch"]


def to_executorch(graph: Graph, backend: str) -> ExecutorchProgramManager:
    """Lower `graph`; its `write_to_file` streams the program.

    Raises:
        ConversionError: an operator has no kernel, or a dim has no upper bound.
    """
    require_border(graph)
    require_fixed_steps(graph)
    program = prepared(graph, backend)
    with lowering():
        from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

        edge = to_edge_transform_and_lower(
            program,
            partitioner=partitioners(backend, len(graph.dims)) or None,
            compile_config=edge_config(),
            constant_methods={SIGNATURE_METHOD: signature_text(graph)},
        )
        if missing := lacking(edge.exported_program()):
            raise cannot_express("ExecuTorch", missing)
        return edge.to_executorch(ExecutorchBackendConfig())


def signature_text(graph: Graph) -> str:
    """Names, dtypes and dims as JSON, for the file to carry."""
    border = {"inputs": graph.inputs, "outputs": graph.outputs}
    document = {kind: [spec.to_json() for spec in specs] for kind, specs in border.items()}
    return json.dumps(document, separators=(",", ":"), sort_keys=True)
