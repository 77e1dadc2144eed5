"""A `Graph` as an ExecuTorch program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...errors import ConversionError
from ...exporter.graph import Graph
from ..unsupported import cannot_express
from .kernels import lacking
from .prepare import (
    lowering,
    prepared,
    require_border,
    require_fixed_steps,
    require_sizes,
    to_edge,
)
from .pte import SIGNATURE_METHOD

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager

__all__ = ["to_executorch"]

_NAMED = 5  # operators in a note


def to_executorch(graph: Graph, backend: str) -> tuple[ExecutorchProgramManager, tuple[str, ...]]:
    """Lower `graph`; the program's `write_to_file` streams it. With notes of what went otherwise.

    Raises:
        ConversionError: an operator has no kernel, or a dim has no upper bound.
    """
    require_border(graph)
    require_fixed_steps(graph)
    require_sizes(graph)
    edge, notes = _with_xnnpack(graph) if backend == "xnnpack" else (_portable(graph), ())
    with lowering():
        from executorch.exir import ExecutorchBackendConfig

        return edge.to_executorch(ExecutorchBackendConfig()), notes


def _with_xnnpack(graph: Graph) -> tuple[EdgeProgramManager, tuple[str, ...]]:
    """What XNNPACK fails to lower is left to portable kernels; where that fails too, all is."""
    try:
        with lowering():
            from .delegation import delegated

            edge = to_edge(prepared(graph, "xnnpack"), _methods(graph))
            edge, left_out = delegated(edge, len(graph.dims))
            if missing := lacking(edge.exported_program()):
                raise cannot_express("ExecuTorch", missing)
    except ConversionError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        return _portable(graph), (
            f"XNNPACK does not lower this program, so portable kernels compute all of it: {reason}",
        )
    if not left_out:
        return edge, ()
    names = sorted(left_out)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return edge, (
        "XNNPACK failed to lower operators that it should take, so portable kernels compute them: "
        f"{', '.join(names[:_NAMED])}{more}",
    )


def _portable(graph: Graph) -> EdgeProgramManager:
    program = prepared(graph, "portable")
    with lowering():
        edge = to_edge(program, _methods(graph))
        if missing := lacking(edge.exported_program()):
            raise cannot_express("ExecuTorch", missing)
    return edge


def _methods(graph: Graph) -> dict[str, str]:
    """The constant method that carries names, dtypes and dims as JSON."""
    border = {"inputs": graph.inputs, "outputs": graph.outputs}
    document = {kind: [spec.to_json() for spec in specs] for kind, specs in border.items()}
    return {SIGNATURE_METHOD: json.dumps(document, separators=(",", ":"), sort_keys=True)}
