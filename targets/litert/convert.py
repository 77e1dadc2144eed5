"""A `Graph` as the bytes of a `.tflite` file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import ConversionError, IsomorphError
from ...exporter.graph import Graph
from ..base import Unsupported
from ..unsupported import cannot_express, unsupported
from .faults import large_numbers
from .halves import with_half_weights
from .library import library
from .prepare import decomposed, faulty, holds_halves, lacking, prepared
from .schema import ordered, tensor_names
from .trial import refusal

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["to_tflite"]

# These lose their names on the way, so a message about a scatter may be about any of them.
_SCATTER = re.compile(r"::(scatter|index_put|index_copy|index_add)")


def to_tflite(graph: Graph) -> bytes:
    """The file's bytes; LiteRT's interpreter has taken them.

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
        raise marks.explain(str(error)) from error
    if holds_halves(graph):
        content = with_half_weights(content)
    content = ordered(content, names)
    if (message := refusal(content)) is not None:
        raise marks.explain(message, tensor_names(content, message))
    return content


class _Marks:
    """Names operators before they are lowered, so that messages can be traced to the user's code.

    A name is the module path and the operator's number; LiteRT's tensors get it too. Lines
    of code stay out of the file.
    """

    def __init__(self) -> None:
        self._by_mark: dict[str, Unsupported] = {}
        self._by_name: dict[str, Unsupported] = {}

    def __call__(self, program: ExportedProgram) -> None:
        if missing := lacking(program):
            raise cannot_express("LiteRT", missing)
        if large := large_numbers(program):
            raise cannot_express("LiteRT", large)
        for number, node in enumerate(program.graph.nodes):
            found = unsupported(node)
            mark = f"{found.module}@{number}"
            self._by_mark[mark] = found
            self._by_name[node.name] = found
            node.meta["nn_module_stack"] = {"": ("", mark)}
            node.meta["stack_trace"] = None
            node.meta.pop("from_node", None)

    def explain(self, message: str, where: str | None = None) -> ConversionError:
        """The error of a library, with the operator that it is about.

        `where` holds names of tensors, if the message itself holds no mark.
        """
        found = self._operators(f"{message} {where or ''}")
        reason = _reason(message)
        if not found:
            return ConversionError(
                f"LiteRT's converter failed: {reason}", hint="-v shows the trace"
            )
        return cannot_express(
            "LiteRT",
            [Unsupported(one.operator, one.module, one.location, reason) for one in found],
        )

    def _operators(self, text: str) -> list[Unsupported]:
        for mark in reversed(re.findall(r"([\w.]*@\d+)", text)):
            if mark in self._by_mark:
                return [self._by_mark[mark]]
        if "(STABLEHLO_SCATTER)" in text:
            return [item for item in self._by_mark.values() if _SCATTER.search(item.operator)]
        if (match := re.search(r"While executing %(\w+) ", text)) is not None:
            return [self._by_name[match[1]]] if match[1] in self._by_name else []
        return []


def _reason(message: str) -> str:
    """The telling line of a message: MLIR's after `error:`, without places and operands."""
    if (match := re.search(r"error: (.*)", message)) is not None:
        line = re.sub(r"^(loc\()?\"[^:]*\)?: ", "", match[1])
        return line.partition(" that was explicitly marked illegal")[0].strip()
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return re.sub(r"\.Node number.*", "", text)
