"""Optimisation profiles: the sizes an engine takes, and those it is optimised for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...exporter.signature import Dim, TensorSpec

if TYPE_CHECKING:
    from ...exporter.graph import Graph

__all__ = ["ShapeRange", "example_sizes", "profile_of"]


@dataclass(frozen=True)
class ShapeRange:
    """Shapes of one input: the smallest, the one to optimise for, and the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def to_json(self) -> dict[str, list[int]]:
        return {"min": list(self.min), "opt": list(self.opt), "max": list(self.max)}


def profile_of(
    inputs: Sequence[TensorSpec], wished: Mapping[str, int], example: Mapping[str, int]
) -> dict[str, ShapeRange]:
    """The profile of a model's dynamic inputs, by name; empty where all sizes are fixed.

    Args:
        inputs: the model's inputs.
        wished: sizes to optimise for by dim, as the user set them.
        example: sizes of the example input by dim, for dims that `wished` leaves open.

    Raises:
        UsageError: a dim has no upper bound, or a wished size is outside its dim.
    """
    dims = {dim.name: dim for spec in inputs for dim in spec.dims}
    for name, size in wished.items():
        _require_inside(name, size, dims)
    lower = {name: dim.min for name, dim in dims.items()}
    upper = {name: _upper_bound(dim, inputs) for name, dim in dims.items()}
    opt = {
        name: wished.get(name, min(max(example.get(name, upper[name]), lower[name]), upper[name]))
        for name in dims
    }
    return {
        spec.name: ShapeRange(spec.resolve(lower), spec.resolve(opt), spec.resolve(upper))
        for spec in inputs
        if spec.dims
    }


def example_sizes(graph: Graph) -> dict[str, int]:
    """Sizes that the dims had in the example input, as torch.export keeps them as hints."""
    nodes = {node.name: node for node in graph.program.graph.nodes}
    sizes: dict[str, int] = {}
    for node_name, spec in zip(graph.input_nodes, graph.inputs, strict=True):
        shape = getattr(nodes[node_name].meta.get("val"), "shape", ())
        for size, dim in zip(shape, spec.shape, strict=False):
            hint: Any = getattr(getattr(size, "node", None), "hint", None)
            if isinstance(dim, Dim) and isinstance(hint, int):
                sizes.setdefault(dim.name, hint)
    return sizes


def _require_inside(name: str, size: int, dims: Mapping[str, Dim]) -> None:
    dim = dims.get(name)
    if dim is None:
        known = f"dynamic dims are {', '.join(dims)}" if dims else "the model has no dynamic dims"
        raise UsageError(f"opt names the dim {name}, which the model does not have", hint=known)
    if size < dim.min or (dim.max is not None and size > dim.max) or size % dim.step:
        steps = f" in steps of {dim.step}" if dim.step > 1 else ""
        raise UsageError(
            f"opt={name}:{size} is outside the dim's {dim.min}..{dim.max}{steps}",
            hint="choose a size of the profile, or widen it with --dynamic",
        )


def _upper_bound(dim: Dim, inputs: Sequence[TensorSpec]) -> int:
    if dim.max is not None:
        return dim.max
    where = next(
        f"{spec.name}.{axis}"
        for spec in inputs
        for axis, size in enumerate(spec.shape)
        if isinstance(size, Dim) and size.name == dim.name
    )
    raise UsageError(
        f"TensorRT needs an upper bound of the dim {dim.name}",
        hint=f"give one: --dynamic {where}={dim.name}:{dim.min}..64",
    )
