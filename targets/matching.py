"""Which value of an artifact is which node of the graph, where a converter keeps no names.

A file that was just converted and is taken to be right is run on random inputs beside the graph
that the converter took: what has the same numbers is the same value. Names of values are the same
in a file that was converted from the same graph before, so they hold for the artifact that is
looked into, whatever is wrong in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..exporter.signature import TensorSpec
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ..exporter.graph import Graph

__all__ = ["matched", "probes"]

_PROBES = 2
# Far above rounding, far below the distance of two values that only look alike.
_TOLERANCE = {"float32": 1e-3, "float64": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}
_LARGEST_SIZE = 8

Arrays = Mapping[str, "NDArray[Any]"]


def matched(graph: Graph, session: Watching) -> dict[str, str]:
    """Name of a value in the session's artifact -> name of the node of `graph` that it is.

    Values that do not depend on the inputs are left out: shapes and constants are alike by chance.
    Where several nodes have the same numbers, they are taken in order.

    Args:
        graph: as the converter took it.
        session: on a file that was converted from it just now.
    """
    import torch

    names = [value.name for value in session.values()]
    nodes = {
        node.name: str(node.meta["val"].dtype).removeprefix("torch.")
        for node in graph.program.graph.nodes
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
    }
    theirs: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    ours: dict[str, list[NDArray[Any]]] = {name: [] for name in nodes}
    for probe in probes(graph):
        seen = session.run_watching({name: _array(t) for name, t in probe.items()}, names)
        for name in names:
            if name in seen:
                theirs[name].append(seen[name])
        for name, value in graph.run(probe, watch=nodes).items():
            if name in ours:
                ours[name].append(_array(value))
    groups = _groups({name: value for name, value in ours.items() if _varies(value)})
    claims: list[list[str]] = [[] for _ in groups]
    for name in names:
        if not _varies(theirs[name]):
            continue
        place = _nearest(theirs[name], [ours[group[0]] for group in groups], nodes, groups)
        if place is not None:
            claims[place].append(name)
    found = {}
    for group, claimed in zip(groups, claims, strict=True):
        # Of more values than nodes the last are meant: a factor of 1 ends an operator, say.
        found.update(zip(claimed[-len(group) :], group, strict=False))
    return {name: found[name] for name in names if name in found}


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


def _array(tensor: Any) -> NDArray[Any]:
    """As sessions have it: numpy has no bfloat16."""
    import torch

    value = tensor.detach().contiguous()
    array: NDArray[Any] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


def _varies(values: Sequence[NDArray[Any]]) -> bool:
    import numpy as np

    if len(values) < _PROBES or values[0].size == 0:
        return False
    return any(not np.array_equal(value, values[0]) for value in values[1:])


def _groups(ours: Mapping[str, Sequence[NDArray[Any]]]) -> list[list[str]]:
    """Nodes by their numbers, in order."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, values in ours.items():
        key = tuple((str(v.dtype), v.shape, v.tobytes()) for v in values)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _nearest(
    value: Sequence[NDArray[Any]],
    candidates: Sequence[Sequence[NDArray[Any]]],
    dtypes: Mapping[str, str],
    groups: Sequence[Sequence[str]],
) -> int | None:
    best, least = None, float("inf")
    for place, candidate in enumerate(candidates):
        if any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(value, candidate, strict=True)
        ):
            continue
        limit = _TOLERANCE.get(dtypes[groups[place][0]], 0.0)
        error = max(map(_distance, value, candidate))
        if error <= limit and error < least:
            best, least = place, error
    return best


def _distance(value: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Relative to the size of the whole; infinite where other than finite numbers differ."""
    import numpy as np

    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(value, wanted) else float("inf")
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(value)):
        return float("inf")
    if not np.array_equal(value[~finite], wanted[~finite], equal_nan=True):
        return float("inf")
    a, b = value[finite].astype(np.float64), wanted[finite].astype(np.float64)
    scale = float(np.sqrt(np.mean(b**2))) if b.size else 0.0
    worst = float(np.max(np.abs(a - b))) if b.size else 0.0
    if scale == 0.0:
        return 0.0 if worst == 0.0 else float("inf")
    return worst / scale
