"""Draws the inputs of a case: the same for the same seed, on every machine.

Values depend on the seed, the case's name and the input's, so adding a case changes no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch

from ...exporter.graph import Graph
from ...exporter.signature import Dim, TensorSpec
from ..cost import CostModel
from .values import Fill, booleans, floats, integers, padding, rows

__all__ = ["Draw", "is_mask"]


def is_mask(spec: TensorSpec) -> bool:
    """Whether an input holds zeros and ones only, or may do so."""
    return bool(spec.shape) and (spec.dtype == "bool" or spec.range == (0, 1))


class Draw:
    """Draws inputs for one graph.

    Args:
        graph: whose inputs are drawn.
        example: tells the sizes of dims that are not being varied.
        seed: changes every random value.
        first: what the case `normal-0` is, where it was made already.
    """

    def __init__(
        self,
        graph: Graph,
        example: Mapping[str, torch.Tensor],
        seed: int,
        first: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.graph = graph
        self.example = example
        self.first = first
        self.seed = seed
        self.cost = CostModel(graph)
        self.sizes = {
            size.name: example[spec.name].shape[axis]
            for spec in graph.inputs
            for axis, size in enumerate(spec.shape)
            if isinstance(size, Dim)
        }

    def __call__(
        self, case: str, fill: Fill, sizes: Mapping[str, int] | None = None
    ) -> dict[str, torch.Tensor]:
        if case == "normal-0" and self.first is not None:
            return dict(self.first)
        return {
            spec.name: self._tensor(spec, spec.resolve(sizes or self.sizes), case, fill)
            for spec in self.graph.inputs
        }

    def indices(self) -> list[TensorSpec]:
        """Integer inputs of more than two values."""
        return [s for s in self.graph.inputs if _is_integer(s) and self.span(s)[1] > 1]

    def masks(self) -> list[TensorSpec]:
        """Boolean inputs, and integers that are 0 or 1."""
        return [s for s in self.graph.inputs if is_mask(s) and not s.is_float]

    def reals(self) -> list[TensorSpec]:
        """Float inputs."""
        return [s for s in self.graph.inputs if s.is_float]

    def shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """An input's shape in the cases that vary no size."""
        return spec.resolve(self.sizes)

    def span(self, spec: TensorSpec) -> tuple[int, int]:
        """An integer input's range; without one, the values that the example shows."""
        if spec.range is not None:
            return int(spec.range[0]), int(spec.range[1])
        shown = self.example[spec.name].to(torch.int64)
        return (int(shown.min()), int(shown.max())) if shown.numel() else (0, 0)

    def _tensor(
        self, spec: TensorSpec, shape: tuple[int, ...], case: str, fill: Fill
    ) -> torch.Tensor:
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{self.seed}/{case}/{spec.name}".encode()))
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if fill in ("prefix", "suffix"):
            if is_mask(spec):
                return padding(fill, shape, generator).to(dtype)
            fill = "normal"
        if fill in ("true", "false", "row"):
            if is_mask(spec) and not spec.is_float and torch.Size(shape).numel():
                return rows(fill, shape, generator).to(dtype)
            fill = "normal"
        if spec.dtype == "bool":
            return booleans(fill, shape, generator)
        if _is_integer(spec):
            return integers(fill, shape, *self.span(spec), generator).to(dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        if dtype.is_complex and fill in ("constant", "negative", "halves", "ties"):
            fill = "normal"
        return floats(fill, shape, spec.range, generator, wide).to(dtype)


def _is_integer(spec: TensorSpec) -> bool:
    return spec.dtype != "bool" and not spec.is_float and not spec.dtype.startswith("complex")
