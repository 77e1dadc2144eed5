"""What coremltools raises, told as the operator of the user's model that it was about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, IsomorphError, first_line, innermost
from ..unsupported import cannot_express, unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["conversion_errors", "failing_node"]


@contextlib.contextmanager
def conversion_errors(program: ExportedProgram | None = None) -> Iterator[None]:
    """Turn whatever is raised into a ConversionError, but for errors of the operating system.

    `program` is what is being converted; with it the error names operator, module and line.
    """
    try:
        yield
    except (IsomorphError, OSError):
        raise
    except Exception as error:
        reason = first_line(innermost(error))
        node = failing_node(program, error) if program is not None else None
        if node is not None:
            raise cannot_express("Core ML", [unsupported(node, reason)]) from error
        raise ConversionError(
            f"coremltools' conversion failed: {reason}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error


def failing_node(program: ExportedProgram, error: BaseException) -> Node | None:
    """The node that was being translated when coremltools raised, or that the message names."""
    error = innermost(error)
    nodes: dict[str, Node] = {
        node.name: node for node in program.graph.nodes if node.op == "call_function"
    }
    frame: Any = error.__traceback__
    found = None
    while frame is not None:
        if frame.tb_frame.f_code.co_name in ("convert_nodes", "from_exir_node"):
            current = frame.tb_frame.f_locals.get("node")
            found = nodes.get(getattr(current, "name", "")) or found
        frame = frame.tb_next
    if found is not None:
        return found
    for name in re.findall(r"[\"'](\w+)[\"']", str(error)):
        found = nodes.get(name) or nodes.get(re.sub(r"_\d+$", "", name))
        if found is not None:
            return found
    return None
