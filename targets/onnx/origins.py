"""Where the nodes of an ONNX model were written, before the traces that tell it are dropped."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...exporter.graph import Origin
from ...exporter.lines import user_line

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["node_origins"]


def node_origins(model: ir.Model) -> dict[str, Origin]:
    """Module path and `file:line` by node name, as torch's exporter notes them."""
    import onnx_ir as ir

    origins = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        notes = node.metadata_props
        # The last scope is the operator itself, the one before it the module that it is in.
        scopes = _names(notes.get("pkg.torch.onnx.name_scopes", "[]"))[:-1]
        module = next((scope for scope in reversed(scopes) if scope), "")
        if module.startswith("_empty_nn_module_stack"):
            module = ""
        if node.name:
            line = user_line(notes.get("pkg.torch.onnx.stack_trace", ""))
            origins[node.name] = Origin(module, line)
    return origins


def _names(text: str) -> list[str]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return [str(name) for name in found] if isinstance(found, list) else []
