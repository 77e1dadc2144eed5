"""Which values may an integer input take? Read from the tables that it indexes."""

from __future__ import annotations

from typing import Any

import torch

from .graph import Graph

__all__ = ["infer_index_ranges"]

# Operators that hand on their first argument's values, or a selection of them.
_PASS_ON = frozenset(
    (
        "alias",
        "clone",
        "contiguous",
        "copy",
        "detach",
        "detach_",
        "expand",
        "flatten",
        "lift_fresh_copy",
        "narrow",
        "permute",
        "repeat",
        "reshape",
        "select",
        "slice",
        "split",
        "squeeze",
        "t",
        "to",
        "transpose",
        "unflatten",
        "unsqueeze",
        "view",
        "_to_copy",
        "type_as",
    )
)


def infer_index_ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """Inclusive ranges, by input name, of the integer inputs that index a table of known size.

    An input that feeds several tables gets the smallest one's range.
    """
    module = graph.program.graph_module
    names = dict(zip(graph.input_nodes, graph.inputs, strict=True))
    limits: dict[str, int] = {}
    for node in module.graph.nodes:
        for index, size in _lookups(node):
            source = _origin(index)
            spec = names.get(source.name) if source is not None else None
            if spec is not None and not spec.is_float and spec.dtype != "bool":
                limits[spec.name] = min(size, limits.get(spec.name, size))
    return {name: (0, size - 1) for name, size in limits.items() if size > 0}


def _lookups(node: torch.fx.Node) -> list[tuple[Any, int]]:
    """The index arguments of a table lookup, each with the table's size."""
    if node.op != "call_function":
        return []
    name = _operator(node)
    args = node.args
    if name in ("embedding", "embedding_bag", "_embedding_bag"):
        return [(args[1], size) for size in _sizes(args[0], 0)]
    if name in ("index_select", "gather"):
        return [(args[2], size) for size in _sizes(args[0], args[1])]
    if name == "index" and isinstance(args[1], (list, tuple)):
        return [
            (index, size)
            for axis, index in enumerate(args[1])
            if index is not None
            for size in _sizes(args[0], axis)
        ]
    if name == "one_hot" and len(args) > 1 and isinstance(args[1], int) and args[1] > 0:
        return [(args[0], args[1])]
    return []


def _operator(node: torch.fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    return getattr(packet, "__name__", "")


def _sizes(table: Any, axis: Any) -> list[int]:
    """The table's size on that axis: one entry if it is known, else none."""
    value = table.meta.get("val") if isinstance(table, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not isinstance(axis, int):
        return []
    size = value.shape[axis] if -value.dim() <= axis < value.dim() else None
    return [size] if isinstance(size, int) else []


def _origin(node: Any) -> torch.fx.Node | None:
    """The placeholder whose values reach `node` unchanged, if any."""
    while isinstance(node, torch.fx.Node):
        if node.op == "placeholder":
            return node
        if node.op != "call_function" or _operator(node) not in _PASS_ON or not node.args:
            return None
        node = node.args[0]
    return None
