"""Rewrite one node as torch itself decomposes its operator, on the node's own fake inputs.

Unlike `run_decompositions` nothing else is retraced: the nodes that take the place of one
carry its module path and source line, and all others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from .inplace import functionalize, is_mutating
from .nodes import Editor
from .prims import as_aten

__all__ = ["decompose", "inlined"]

aten = torch.ops.aten

Decomposition = Callable[..., Any]


def decompose(editor: Editor, node: Node) -> Any:
    """What takes the place of `node`, or None if torch has no decomposition that can be used.

    The result may hold operators that need rewriting themselves. What draws random numbers
    or asks for values while it is traced has none.
    """
    if getattr(node.target, "namespace", "") == "prims":
        return as_aten(editor, node)
    function = _decomposition(node.target)
    return None if function is None else inlined(editor, node, function)


def inlined(editor: Editor, node: Node, function: Decomposition) -> Any:
    """The operators that `function` runs on the arguments of `node`, in its place.

    None where it asks for values, draws random numbers, or uses the operator itself or a
    constant tensor.
    """
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    nodes = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    target: Any = node.target
    traced = _trace(function, target, leaves, spec, nodes)
    return None if traced is None else _inline(editor, node, traced, nodes)


@lru_cache(maxsize=1)
def _table() -> dict[Any, Decomposition]:
    from torch._decomp import decomposition_table

    return dict(decomposition_table)


def _decomposition(target: Any) -> Decomposition | None:
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if (function := _table().get(target)) is not None:
        return function
    if target._can_decompose():
        return lambda *args, **kwargs: target.decompose(*args, **kwargs)
    return None


def _trace(
    function: Decomposition, kernel: Decomposition, leaves: list[Any], spec: Any, nodes: list[Node]
) -> GraphModule | None:
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode

    values = [node.meta.get("val") for node in nodes]
    if any(not isinstance(value, (torch.Tensor, torch.SymInt, int, float)) for value in values):
        return None
    mode = detect_fake_mode(values)
    if mode is None:
        return None

    def call(function: Decomposition, *given: Any) -> Any:
        found = dict(zip(nodes, given, strict=True))
        args, kwargs = pytree.tree_unflatten(
            [found[leaf] if isinstance(leaf, Node) else leaf for leaf in leaves], spec
        )
        result = function(*args, **kwargs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    # The C++ kernels of composite operators would fix dynamic sizes at their examples; where all
    # sizes are fixed, they know what torch's Python forms of some operators refuse.
    static = all(isinstance(value, torch.Tensor) and _is_static(value) for value in values)
    traced = None
    with suppress(Exception), mode, torch.no_grad(), enable_python_dispatcher():
        traced = make_fx(partial(call, function), tracing_mode="real")(*values)
    if traced is None and static:
        with suppress(Exception), mode, torch.no_grad():
            traced = make_fx(partial(call, kernel), tracing_mode="real")(*values)
    if traced is None:  # a decomposition may ask for what a fake tensor has not
        return None
    functionalize(traced.graph)  # some decompositions write into tensors of their own
    if any(map(is_mutating, traced.graph.nodes)):
        return None
    traced.graph.eliminate_dead_code()
    return traced


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _inline(editor: Editor, node: Node, traced: GraphModule, nodes: list[Node]) -> Any:
    """Copy the traced operators before `node`; None where they hold a constant tensor."""
    found: dict[Node, Any] = {}
    inputs = iter(nodes)
    for inner in traced.graph.nodes:
        if inner.op == "placeholder":
            found[inner] = next(inputs)
        elif inner.op == "get_attr":
            constant = getattr(traced, str(inner.target), None)
            if not isinstance(constant, torch.Tensor) or constant.numel() != 1:
                return None
            found[inner] = _scalar(editor, node, constant)
        elif inner.op == "call_function":
            args, kwargs = pytree.tree_map_only(Node, found.__getitem__, (inner.args, inner.kwargs))
            if inner.target is node.target:
                return None  # it would be decomposed again, for ever
            value = inner.meta.get("val")
            found[inner] = editor.call(node, inner.target, *args, value=value, **kwargs)
        else:
            results = pytree.tree_map_only(Node, found.__getitem__, inner.args[0])
    many = isinstance(node.meta.get("val"), (tuple, list))
    return list(results) if many else results[0]


def _scalar(editor: Editor, node: Node, constant: torch.Tensor) -> Node:
    return editor.call(
        node,
        aten.full.default,
        list(constant.shape),
        constant.item(),
        dtype=constant.dtype,
    )
