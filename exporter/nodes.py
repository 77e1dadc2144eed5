"""Read and rewrite nodes of a captured graph, keeping where they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph

__all__ = ["Editor", "argument", "tensor_value"]


def tensor_value(item: Any) -> torch.Tensor | None:
    """The fake tensor that stands for a node's value; None for all else."""
    value = item.meta.get("val") if isinstance(item, Node) else None
    return value if isinstance(value, torch.Tensor) else None


def argument(node: Node, name: str) -> Any:
    """An argument by its schema name, given or default."""
    target: Any = node.target
    for index, entry in enumerate(target._schema.arguments):
        if entry.name != name:
            continue
        if name in node.kwargs:
            return node.kwargs[name]
        if index < len(node.args) and not entry.kwarg_only:
            return node.args[index]
        return entry.default_value if entry.has_default_value() else None
    raise KeyError(name)


class Editor:
    """Adds nodes to a graph on behalf of the node they replace."""

    def __init__(self, graph: FxGraph) -> None:
        self._graph = graph
        self._made: dict[Node, None] = {}

    def call(self, origin: Node, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Node:
        """A call before `origin`, carrying its provenance; `value` spares evaluating the meta."""
        with self._graph.inserting_before(origin):
            node = self._graph.call_function(target, args, kwargs)
        node.meta = {key: item for key, item in origin.meta.items() if key != "val"}
        node.meta["val"] = _evaluate(node, origin) if value is None else value
        self._made[node] = None
        return node

    def replace(self, node: Node, value: Any) -> list[Node]:
        """Let `value` (a node, or one per result) take the place of `node`, and its name.

        Returns:
            The calls that were made since the last replacement and are still needed, in order.
        """
        pairs = [(node, value)]
        if not isinstance(value, Node):
            pairs = [(user, value[user.args[1]]) for user in list(node.users)]
        for old, new in pairs:
            old.replace_all_uses_with(new)
            self._graph.erase_node(old)
            if new in self._made:
                new.name = old.name
        if not isinstance(value, Node):
            self._graph.erase_node(node)
        made = list(self._made)
        self._made.clear()
        for new in reversed(made):
            if not new.users:
                self._graph.erase_node(new)
        return [new for new in made if new.users]


def _evaluate(node: Node, origin: Node) -> Any:
    """The node's value on fake tensors: those of its arguments, or else of `origin`."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode

    args, kwargs = pytree.tree_map_only(
        Node, lambda source: source.meta["val"], (node.args, node.kwargs)
    )
    known = (
        (args, kwargs),
        (origin.meta.get("val"), [n.meta.get("val") for n in origin.all_input_nodes]),
    )
    mode = next(
        (m for values in known if (m := detect_fake_mode(pytree.tree_leaves(values)))), None
    )
    if mode is None:
        mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    target: Any = node.target
    with torch.no_grad(), mode, enable_python_dispatcher():
        return target(*args, **kwargs)
