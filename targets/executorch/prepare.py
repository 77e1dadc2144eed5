"""A graph's program made ready for ExecuTorch's lowering."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, IsomorphError
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import legalize
from ...exporter.quiet import quiet_loggers
from ..base import Unsupported
from .kernels import has_kernel, lacking

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["edge_config", "find_unsupported", "lowering_errors", "prepared", "require_border"]


def prepared(graph: Graph) -> ExportedProgram:
    """A flat copy of the graph's program, legalised."""
    program = flat_program(graph)

    def supported(node: Node) -> bool:
        return has_kernel(node.target)

    legalize(program, supported)
    refresh_outputs(program)
    if table := _further_decompositions(program):
        with lowering_errors():
            program = program.run_decompositions(table)
        legalize(program, supported)
        refresh_outputs(program)
    return program


def _further_decompositions(program: ExportedProgram) -> dict[Any, Any]:
    """torch's decompositions of what neither has a kernel nor is decomposed by the lowering."""
    usual = torch.export.default_decompositions()
    known: dict[Any, Any] = torch._decomp.decomposition_table
    wanted = {}
    for node in program.graph.nodes:
        target = node.target
        if node.op == "call_function" and target in known and target not in usual:
            if not has_kernel(target):
                wanted[target] = known[target]
    return wanted


def edge_config() -> EdgeCompileConfig:
    """Without the verifier of the edge dialect: `lacking` asks the runtime's registry instead."""
    from executorch.exir import EdgeCompileConfig

    return EdgeCompileConfig(_check_ir_validity=False)


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators without a portable kernel, after rewrites and decompositions."""
    require_border(graph)
    program = prepared(graph)
    with lowering_errors():
        from executorch.exir import to_edge_transform_and_lower

        edge = to_edge_transform_and_lower(program, compile_config=edge_config())
    return lacking(edge.exported_program())


def require_border(graph: Graph) -> None:
    """Demand what the format can say of inputs and outputs: real dtypes, bounded sizes.

    Raises:
        ConversionError: names the input and the choices.
    """
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype.startswith("complex"):
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, and ExecuTorch programs take and return real "
                "tensors only",
                hint="pass real and imaginary parts: torch.view_as_real / view_as_complex",
            )
    for spec in graph.inputs:
        for axis, size in enumerate(spec.shape):
            if getattr(size, "max", 0) is None:
                raise ConversionError(
                    f"ExecuTorch plans memory ahead and needs the largest size of every dynamic "
                    f"dim; {size} of {spec.name} has none",
                    hint=f"give one, --dynamic {spec.name}.{axis}={size}:1..MAX, or leave the "
                    "axis out of --dynamic to fix its size",
                )


@contextmanager
def lowering_errors() -> Iterator[None]:
    """executorch and torch raise anything here; tell the innermost cause. Keeps both quiet."""
    names = ("executorch", "root", "torch.export", "torch.utils._pytree", "torchao")
    level = logging.root.level
    try:
        with warnings.catch_warnings(), quiet_loggers(*names):
            warnings.simplefilter("ignore")
            logging.root.setLevel(logging.ERROR)
            yield
    except IsomorphError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise ConversionError(
            f"ExecuTorch's lowering failed: {text}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error
    finally:
        logging.root.setLevel(level)
