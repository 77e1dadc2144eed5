"""Strides of pooling, written out: coremltools 9.0 wants them, and torch may leave them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["give_strides"]

aten = torch.ops.aten

_POOLING = {
    *(aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default),
    *(aten.max_pool1d_with_indices.default, aten.max_pool2d_with_indices.default),
    *(aten.max_pool3d_with_indices.default, aten.avg_pool1d.default),
    *(aten.avg_pool2d.default, aten.avg_pool3d.default),
}


def give_strides(program: ExportedProgram) -> None:
    """Let pooling without a stride have that of its window, as torch documents, in place."""
    for node in program.graph_module.graph.nodes:
        if node.target not in _POOLING or "stride" in node.kwargs:
            continue
        x, window, *rest = node.args
        if not (rest and rest[0]):
            node.args = (x, window, window, *rest[1:])
