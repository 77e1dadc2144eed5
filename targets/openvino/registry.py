"""Which operators the installed frontend translates, asked of the frontend itself.

The frontend has no list to read. It is given a graph of bare operators without arguments, and
its report tells those it has no rule for apart from those whose rule complains. This takes
milliseconds, where a conversion takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..base import Unsupported
from ..int32 import beyond_int32
from ..unsupported import unsupported
from .faults import fault

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["failed_operators", "untranslated"]

_NO_RULE = re.compile(r"No conversion rule found for operations: (.+)")
_FAILED = re.compile(r"conversion of operation (\w+)/")


def untranslated(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a decomposed program that have no translation, or a wrong one."""
    nodes = list(_calls(program))
    missing = _without_rule({node.target for node in nodes})
    found = [unsupported(node, reason) for node, reason in beyond_int32(program, "OpenVINO")]
    for node in nodes:
        reason = fault(node)
        if reason or str(node.target) in missing:
            found.append(unsupported(node, reason))
    return found


def failed_operators(program: ExportedProgram, message: str) -> list[Unsupported]:
    """The operators that the frontend's report of a failed conversion names, with its reasons."""
    nodes = {node.name: node for node in _calls(program)}
    found = []
    for part in re.split(r"^-- ", message, flags=re.MULTILINE):
        name = _FAILED.search(part)
        if name is None or name[1] not in nodes:
            continue
        told = part.partition("\nSummary:")[0]
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        found.append(unsupported(nodes[name[1]], lines[-1]))
    if missing := _NO_RULE.search(message):
        names = set(missing[1].split(", "))
        found += [unsupported(node) for node in nodes.values() if str(node.target) in names]
    return found


def _calls(program: ExportedProgram) -> Iterator[Node]:
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op == "call_function":
                yield node


def _without_rule(targets: Iterable[Any]) -> set[str]:
    """Those of `targets` (by text) that the frontend has no rule for."""
    import torch
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    graph = torch.fx.Graph()
    from operator import getitem

    plain = [
        target
        for target in targets
        if not isinstance(target, torch._ops.HigherOrderOperator)
        and target is not getitem
        and not str(target).startswith("isomorph.")  # translated by our own extensions
    ]
    numbers = (0, 0)  # for Python's operators: their call is written as an expression
    graph.output(
        tuple(
            graph.call_function(t, () if hasattr(t, "_schema") else numbers)
            for t in sorted(plain, key=str)
        )
    )
    decoder = TorchFXPythonDecoder(torch.fx.GraphModule(torch.nn.Module(), graph))
    manager = FrontEndManager()  # must outlive what it loads
    frontend = manager.load_by_framework("pytorch")
    try:
        frontend.convert(frontend.load(decoder))
    except Exception as error:  # noqa: BLE001 - the report is the answer
        found = _NO_RULE.search(str(error))
        return set(found[1].split(", ")) if found else set()
    return set()
