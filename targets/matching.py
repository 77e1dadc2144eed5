"""Which value of an artifact is which node of the graph, where a converter keeps no names.

A file that was just converted and is taken to be right is run on random inputs beside the graph
that the converter took: what has the same numbers is the same value. Names of values are the same
in a file that was converted from the same graph before, so they hold for the artifact that is
looked into, whatever is wrong in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..exporter.signature import TensorSpec
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from ..exporter.graph import Graph

__all__ = ["matched", "probes", "with_program"]

_PROBES = 2
# Far above rounding, far below the distance of two values that only look alike.
_TOLERANCE = {"float32": 1e-3, "float64": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}
_LARGEST_SIZE = 8
_ELEMENTS = 4096


def matched(graph: Graph, session: Watching) -> dict[str, str]:
    """Name of a value in the session's artifact -> name of the node of `graph` that it is.

    Values that do not depend on the inputs are left out: shapes and constants are alike by chance.
    Where several nodes have the same numbers, they are taken in order.

    Args:
        graph: as the converter took it.
        session: on a file that was converted from it just now.
    """

    names = [value.name for value in session.values()]
    nodes = [
        node.name
        for node in graph.program.graph.nodes
        if node.op == "call_function" and _is_tensor(node.meta.get("val"))
    ]
    theirs: dict[str, list[_Sample]] = {name: [] for name in names}
    ours: dict[str, list[_Sample]] = {name: [] for name in nodes}
    for probe in probes(graph):
        seen = session.run_watching({name: _array(t) for name, t in probe.items()}, names)
        for name in names:
            theirs[name].append(_sample(seen[name]))
        del seen
        for name, value in graph.run(probe, watch=nodes).items():
            if name in ours:
                ours[name].append(_sample(_array(value), str(value.dtype)))
    groups = _groups({name: found for name, found in ours.items() if _varies(found)})
    wanted = [ours[group[0]] for group in groups]
    claims: list[list[str]] = [[] for _ in groups]
    for name, found in theirs.items():
        place = _nearest(found, wanted) if _varies(found) else None
        if place is not None:
            claims[place].append(name)
    pairs: dict[str, str] = {}
    for group, claimed in zip(groups, claims, strict=True):
        # Of more values than nodes the last are meant: a factor of 1 ends an operator, say.
        pairs.update(zip(claimed[-len(group) :], group, strict=False))
    return {name: pairs[name] for name in names if name in pairs}


def with_program(graph: Graph, program: ExportedProgram) -> Graph:
    """`graph` with the program that a converter took, whose nodes may have other names."""
    signature: Any = program.graph_signature
    return replace(
        graph,
        program=program,
        input_nodes=tuple(signature.user_inputs),
        output_nodes=tuple(spec.arg.name for spec in signature.output_specs),
    )


def probes(graph: Graph) -> Iterator[dict[str, Any]]:
    """Random inputs of the graph, always the same."""
    import torch

    generator = torch.Generator().manual_seed(0)
    sizes = {name: _size(dim) for name, dim in graph.dims.items()}
    for _ in range(_PROBES):
        yield {spec.name: _drawn(spec, spec.resolve(sizes), generator) for spec in graph.inputs}


def _size(dim: Any) -> int:
    """A small size that the dim takes, and that is not 1, which is broadcast."""
    size = max(dim.min, 2, min(_LARGEST_SIZE // 2, dim.max or _LARGEST_SIZE))
    size = -(-size // dim.step) * dim.step
    return int(size if dim.max is None else min(size, dim.max))


def _drawn(spec: TensorSpec, shape: tuple[int, ...], generator: Any) -> Any:
    import torch

    dtype = getattr(torch, spec.dtype)
    if spec.is_float:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    low, high = (int(edge) for edge in spec.range or (0, 1))
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _array(tensor: Any) -> NDArray[Any]:
    """As sessions have it: numpy has no bfloat16."""
    import torch

    value = tensor.detach().contiguous()
    array: NDArray[Any] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


@dataclass(frozen=True)
class _Sample:
    """Some elements of a value, evenly spread; `limit` is how far apart two may be that are one."""

    shape: tuple[int, ...]
    elements: NDArray[Any]
    limit: float = 0.0


def _sample(array: NDArray[Any], dtype: str = "") -> _Sample:
    import numpy as np

    places = np.linspace(0, max(array.size - 1, 0), min(array.size, _ELEMENTS), dtype=np.int64)
    limit = _TOLERANCE.get(dtype.removeprefix("torch."), 0.0)
    return _Sample(array.shape, array.reshape(-1)[places], limit)


def _varies(samples: Sequence[_Sample]) -> bool:
    import numpy as np

    first, *others = samples
    return any(not np.array_equal(first.elements, other.elements) for other in others)


def _groups(ours: Mapping[str, Sequence[_Sample]]) -> list[list[str]]:
    """Nodes by their numbers, in order."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, samples in ours.items():
        key = tuple((s.shape, str(s.elements.dtype), s.elements.tobytes()) for s in samples)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _nearest(samples: Sequence[_Sample], wanted: Sequence[Sequence[_Sample]]) -> int | None:
    best, least = None, float("inf")
    for place, candidate in enumerate(wanted):
        error = max(map(_distance, samples, candidate))
        if error <= candidate[0].limit and error < least:
            best, least = place, error
    return best


def _distance(value: _Sample, wanted: _Sample) -> float:
    """Relative to the size of the whole; infinite where other than finite numbers differ."""
    import numpy as np

    a, b = value.elements, wanted.elements
    if value.shape != wanted.shape or a.dtype != b.dtype:
        return float("inf")
    if b.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else float("inf")
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)):
        return float("inf")
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    worst = float(np.max(np.abs(a - b), initial=0.0))
    scale = float(np.sqrt(np.mean(b**2))) if b.size else 0.0
    if scale == 0.0:
        return 0.0 if worst == 0.0 else float("inf")
    return worst / scale
