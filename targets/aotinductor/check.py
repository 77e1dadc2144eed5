"""What Inductor takes: compiled operators, and those it calls in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ..base import Unsupported
from ..unsupported import unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["find_unsupported", "nodes_of"]

# Libraries whose operators a process that loads the package can be expected to have.
_NAMESPACES = ("aten", "prims", "quantized", "torchvision")
# Wrappers that Inductor's own tracing opens up.
_OPENED = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "out_dtype")


def find_unsupported(program: ExportedProgram) -> list[Unsupported]:
    """Nodes that Inductor has no form for."""
    found = []
    for node in nodes_of(program):
        target: Any = node.target
        if isinstance(target, torch._ops.OpOverload) and target.namespace not in _NAMESPACES:
            reason = (
                f"an operator of the library {target.namespace}, which a process that loads "
                "the package lacks"
            )
            found.append(unsupported(node, reason))
        elif isinstance(target, torch._ops.HigherOrderOperator) and not _known(target):
            found.append(unsupported(node, "Inductor does not compile it"))
    return found


def _known(target: torch._ops.HigherOrderOperator) -> bool:
    if target.name() in _OPENED:
        return True
    from ...exporter.quiet import quiet_loggers

    with quiet_loggers("torch.utils.cpp_extension"):
        from torch._inductor.lowering import lowerings

    return target in lowerings


def nodes_of(program: ExportedProgram) -> Iterator[Node]:
    """Calls of a program, those of its sub-graphs included."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")
