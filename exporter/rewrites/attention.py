"""Make nn.TransformerEncoder compute in eager mode what it computes when captured.

In eval mode torch takes a fused path through nn.TransformerEncoder and
nn.MultiheadAttention that no exporter can capture; given a padding mask, that
path also puts zeros at the padded positions, where the plain path, which is
captured, has other values that nobody is meant to read. Both sides take the
plain path here, and a note tells it (torch 2.14:
`torch.backends.mha.set_fastpath_enabled`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.export import ExportedProgram

__all__ = ["note_on_padding", "plain_attention"]


@contextmanager
def plain_attention() -> Iterator[None]:
    """While active, attention modules take their unfused path."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def note_on_padding(module: nn.Module, program: ExportedProgram) -> str | None:
    """What to tell if the model gives a mask to an nn.TransformerEncoder; else None."""
    attention = torch.ops.aten.scaled_dot_product_attention.default
    masked = any(
        node.target is attention and (len(node.args) > 3 or "attn_mask" in node.kwargs)
        for node in program.graph.nodes
    )
    for name, part in module.named_modules() if masked else ():
        if isinstance(part, nn.TransformerEncoder) and part.use_nested_tensor:
            return (
                f"{name or 'the model'} is an nn.TransformerEncoder: given a padding mask, eager "
                "torch puts zeros at padded positions; the artifact holds the values that the "
                "layers compute there, and eager was compared in that mode"
            )
    return None
