"""A `Graph` as the bytes of a `.tflite` file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, IsomorphError
from ...exporter.graph import Graph, node_origin
from ..base import Unsupported
from ..unsupported import cannot_express, unsupported
from .library import library
from .prepare import decomposed, faulty, lacking, prepared

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["to_tflite"]

# The file name that stands for "the captured operator with this number" in MLIR's messages.
_MARK = "isomorph-operator"


def to_tflite(graph: Graph) -> tuple[bytes, tuple[str, ...]]:
    """The file's bytes, and notes for the user.

    Raises:
        ConversionError: an operator cannot be expressed, or the libraries fail.
    """
    program = prepared(graph)
    if wrong := faulty(program):
        raise cannot_express("LiteRT", wrong)
    names = ([spec.name for spec in graph.inputs], [spec.name for spec in graph.outputs])
    marks = _Marks()
    try:
        content = library().flatbuffer(decomposed(program), names, marks)
    except IsomorphError:
        raise
    except Exception as error:
        raise marks.explain(error) from error
    return content, ()


class _Marks:
    """Marks operators before they are lowered, so that messages can be traced to the user's code.

    Only module paths go into the file: LiteRT names its tensors by them.
    """

    def __init__(self) -> None:
        self._nodes: list[Unsupported] = []
        self._by_name: dict[str, Unsupported] = {}

    def __call__(self, program: ExportedProgram) -> None:
        if missing := lacking(program):
            raise cannot_express("LiteRT", missing)
        for number, node in enumerate(program.graph.nodes):
            found = unsupported(node)
            self._nodes.append(found)
            self._by_name[node.name] = found
            path = node_origin(node).module
            node.meta["nn_module_stack"] = {"": ("", path)}
            node.meta["stack_trace"] = f'File "{_MARK}", line {number}, in forward\n    -'
            node.meta.pop("from_node", None)

    def explain(self, error: Exception) -> ConversionError:
        """The error of a lowering or of MLIR, with the operator that it is about."""
        text = str(error)
        found = self._operator(text)
        reason = _reason(text) or type(error).__name__
        if found is None:
            return ConversionError(
                f"LiteRT's converter failed: {reason}",
                hint="-v shows the trace",
            )
        return cannot_express(
            "LiteRT", [Unsupported(found.operator, found.module, found.location, reason)]
        )

    def _operator(self, text: str) -> Unsupported | None:
        if (match := re.search(rf'{_MARK}"?:(\d+)', text)) is not None:
            return self._nodes[int(match[1])]
        if (match := re.search(r"While executing %(\w+) ", text)) is not None:
            return self._by_name.get(match[1])
        return None


def _reason(text: str) -> str:
    """The first telling line of a message: MLIR's after `error:`, without the operand dump."""
    if (match := re.search(r"error: (.*)", text)) is not None:
        line = re.sub(rf'^(\S*\("?{_MARK}"?:\d+:\d+\)+:?|.*{_MARK}"?:\d+:\d+\)*:) *', "", match[1])
        return line.partition(" that was explicitly marked illegal")[0].strip()
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0] if lines else ""
