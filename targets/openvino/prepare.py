"""A graph's program made ready for OpenVINO's PyTorch frontend."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, IsomorphError, innermost
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import drop_checks, legalize
from ...exporter.rules.common import RULES
from ...exporter.rules.statistics import STATISTICS_RULES
from ..base import Unsupported
from ..unsupported import cannot_express
from .direct import made_direct
from .faults import fault, repaired
from .recurrent import split_layers, unrolled
from .registry import untranslated

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["find_unsupported", "frontend_errors", "prepared"]


_SHARED_RULES = {**RULES, **STATISTICS_RULES}


def prepared(graph: Graph) -> tuple[ExportedProgram, list[int]]:
    """The program with torch's decompositions and our rewrites, and where each output is found.

    The frontend cannot return a value twice, or an input, so the program returns every
    computed value once. The list holds, for each of `graph.outputs`, its place among them; an
    output that is input i has the place `-1 - i`.

    Raises:
        ConversionError: torch cannot retrace the program, or would fix a dynamic axis.
    """
    program, places = _flattened(graph)
    if lost := unrolled(program):
        raise cannot_express("OpenVINO", lost)
    with frontend_errors(), quiet():
        if not made_direct(program):
            program = program.run_decompositions(_decompositions())
    drop_checks(program)  # a retrace writes the assertions back
    repaired(program)
    refresh_outputs(program)
    return program, places


def _flattened(graph: Graph) -> tuple[ExportedProgram, list[int]]:
    program = flat_program(graph)
    places = _return_once(program, graph)
    legalize(program, lambda node: not fault(node), _SHARED_RULES)
    split_layers(program)
    refresh_outputs(program)
    return program, places


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators that the frontend has no translation for, or a wrong one."""
    with frontend_errors():
        if lost := unrolled(_flattened(graph)[0]):
            return lost
        program, _ = prepared(graph)
        return untranslated(program)


def _return_once(program: ExportedProgram, graph: Graph) -> list[int]:
    """Let the program return each computed value once."""
    import torch

    output = program.graph_module.graph.output_node()
    nodes: Any = output.args[0]
    kept: list[Node] = []
    specs, places = [], []
    for node, spec in zip(nodes, program.graph_signature.output_specs, strict=True):
        if node.op == "placeholder" and node.name in graph.input_nodes:
            places.append(-1 - graph.input_nodes.index(node.name))
            continue
        if node not in kept:
            kept.append(node)
            specs.append(spec)
        places.append(kept.index(node))
    output.args = (tuple(kept),)
    program.graph_signature.output_specs = specs
    entry = program.module_call_graph[0].signature
    if entry is not None:
        entry.out_spec = torch.utils._pytree.tree_structure(tuple(range(len(kept))))
    program.graph_module.recompile()
    return places


# Attention, although the frontend has it: torch's rows that are masked throughout are 0, and
# `guard_attention` needs to see the products.
_DECOMPOSED = {"aten.scaled_dot_product_attention.default"}


def _decompositions() -> Any:
    """torch's default decompositions but for what the frontend translates itself."""
    from openvino.frontend.pytorch.torchdynamo.export_decompositions import ops_to_not_decompose
    from torch.export import default_decompositions

    table = dict(default_decompositions().items())
    for target in ops_to_not_decompose():
        if str(target) not in _DECOMPOSED:
            table.pop(target, None)
    return table


@contextlib.contextmanager
def frontend_errors() -> Iterator[None]:
    """torch and OpenVINO raise anything here; tell the innermost cause."""
    try:
        yield
    except IsomorphError:
        raise
    except Exception as error:
        cause = innermost(error)
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith(("Check '", "FrontEnd API"))]
        text = next(iter(telling or lines), type(cause).__name__)
        raise ConversionError(
            f"OpenVINO's conversion failed: {text}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and log lines of a retrace."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
