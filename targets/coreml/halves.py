"""Values that a graph holds in float16 are float16 in the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import tensor_value

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["halves_kept"]


@contextlib.contextmanager
def halves_kept(program: ExportedProgram) -> Iterator[None]:
    """While active, conversions of `program` in this process keep the dtype of its float16 values.

    coremltools 9.0 takes a number in the code (a factor, what a border is filled with) for
    float32, and promotes what it meets: the result is float32, and the next convolution has
    weights of another dtype than its bias, or is computed in float32.
    """
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.frontend.torch.converter import TranscriptionContext
    from coremltools.converters.mil.mil import Var, types

    values = ((node.name, tensor_value(node)) for node in program.graph.nodes)
    halves = {name for name, value in values if value is not None and value.dtype == torch.float16}
    add = TranscriptionContext.add

    def add_as_half(context: Any, var: Any, torch_name: str | None = None, **given: Any) -> None:
        name = var.name if torch_name is None else torch_name
        if name in halves and isinstance(var, Var) and var.dtype == types.fp32:
            var = Builder.cast(x=var, dtype="fp16", name=f"{name}_half")
        add(context, var, name, **given)

    TranscriptionContext.add = add_as_half
    try:
        yield
    finally:
        TranscriptionContext.add = add
