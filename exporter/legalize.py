"""Rewrite ATen operators that a target lacks into ones it has, node by node.

A full retrace (`run_decompositions`) costs seconds and loses names; most
captured programs need only a few local rewrites. Each rewrite keeps the node's
provenance (module path, source line), so that an error or a parity report
still points at the user's code. What no rule covers stays as it is: the target
then falls back to a retrace, or reports the operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Supported", "is_mutating", "legalize", "tensor_value"]

aten = torch.ops.aten

Supported = Callable[[Node], bool]
"""Whether the target can take a node as it is."""

Rule = Callable[["Editor", Node], Any]
"""Returns what replaces a node's value (a node, or a list of nodes), or None to leave it."""


def legalize(program: ExportedProgram, supported: Supported) -> bool:
    """Rewrite `program`'s graph in place; pass a copy (`Graph.copy_program()`).

    First in-place operators on intermediate values become functional ones where
    nothing else reads what they wrote to; then operators that do nothing at
    inference go; then every node that `supported` denies is rewritten if a rule
    knows how.

    Returns:
        True if no mutating operator remains. Otherwise only the first step was
        done, because the others assume that views and copies may be exchanged.
    """
    graph = program.graph_module.graph
    _functionalize(program)
    functional = not any(is_mutating(node) for node in _calls(graph))
    if functional:
        editor = Editor(graph)
        for node in list(_calls(graph)):
            _rewrite(editor, node, supported)
        graph.eliminate_dead_code()
    program.graph_module.recompile()
    return functional


def is_mutating(node: Node) -> bool:
    """Whether the node writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def tensor_value(argument: Any) -> torch.Tensor | None:
    """The fake tensor that stands for a node's value; None for all else."""
    value = argument.meta.get("val") if isinstance(argument, Node) else None
    return value if isinstance(value, torch.Tensor) else None


class Editor:
    """Adds nodes to a graph on behalf of the node they replace."""

    def __init__(self, graph: FxGraph) -> None:
        self._graph = graph
        self._made: set[Node] = set()

    def call(self, origin: Node, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Node:
        """A call before `origin`, carrying its provenance; `value` spares evaluating the meta."""
        with self._graph.inserting_before(origin):
            node = self._graph.call_function(target, args, kwargs)
        node.meta = {key: item for key, item in origin.meta.items() if key != "val"}
        node.meta["val"] = _evaluate(node) if value is None else value
        self._made.add(node)
        return node

    def replace(self, node: Node, value: Any) -> None:
        """Let `value` (a node, or one per result) take the place of `node`, and its name."""
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


def _rewrite(editor: Editor, node: Node, supported: Supported) -> None:
    target: Any = node.target
    rule = _ALWAYS.get(target)
    if rule is None and not supported(node):
        rule = _RULES.get(target)
    value = rule(editor, node) if rule is not None else None
    if value is not None:
        editor.replace(node, value)


def _evaluate(node: Node) -> Any:
    """The node's value on fake tensors."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode

    args, kwargs = pytree.tree_map_only(
        Node, lambda argument: argument.meta["val"], (node.args, node.kwargs)
    )
    mode = detect_fake_mode(pytree.tree_leaves((args, kwargs)))
    if mode is None:
        mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    target: Any = node.target
    with torch.no_grad(), mode, enable_python_dispatcher():
        return target(*args, **kwargs)


def _calls(graph: FxGraph) -> Iterable[Node]:
    return (node for node in graph.nodes if node.op == "call_function")


# ---------------------------------------------------------------- in-place operators

# Composite operators without alias annotations whose result is always a new tensor.
_FRESH = {
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("linear", "matmul", "batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d"),
    *("adaptive_avg_pool2d", "adaptive_avg_pool3d", "softmax", "log_softmax", "silu", "relu6"),
    *("scaled_dot_product_attention", "upsample_nearest2d", "upsample_bilinear2d", "embedding"),
}


def _functionalize(program: ExportedProgram) -> None:
    """Turn `relu_` and its kind into `relu` where no alias of the written tensor is read later."""
    graph = program.graph_module.graph
    position = {node: index for index, node in enumerate(graph.nodes)}
    group: dict[Node, set[Node]] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            group[node] = {node}
            continue
        functional = _functional_overload(node) if is_mutating(node) else None
        if functional is not None:
            written = node.args[0]
            if isinstance(written, Node) and _is_last_use(group[written], node, position):
                node.target = functional
                group[node] = {node}
                continue
        if _may_alias(node):
            members = set().union({node}, *(group[source] for source in node.all_input_nodes))
            for member in members:
                group[member] = members
        else:
            group[node] = {node}


def _is_last_use(aliases: set[Node], writer: Node, position: dict[Node, int]) -> bool:
    """Whether only `writer` itself sees the memory of `aliases` from here on."""
    if any(alias.op != "call_function" for alias in aliases):
        return False
    now = position[writer]
    return all(user is writer or position[user] < now for alias in aliases for user in alias.users)


def _functional_overload(node: Node) -> Any:
    """`aten.relu` for `aten.relu_`; None where the two would not give the same values."""
    target: Any = node.target
    packet, _, overload = target.name().partition("::")[2].partition(".")
    if not packet.endswith("_") or packet.startswith("_"):
        return None
    functional = getattr(getattr(aten, packet[:-1], None), overload or "default", None)
    written = tensor_value(node.args[0]) if node.args else None
    if functional is None or functional._schema.is_mutable or written is None:
        return None
    ours, theirs = target._schema.arguments, functional._schema.arguments
    if [a.name for a in ours] != [a.name for a in theirs]:
        return None
    # The in-place form casts its result to the written tensor's dtype; the functional one promotes.
    for argument in pytree.tree_leaves((node.args, node.kwargs)):
        value = tensor_value(argument)
        if value is not None and value.dtype not in (written.dtype, torch.bool):
            return None
        if isinstance(argument, float) and not written.dtype.is_floating_point:
            return None
    if written.dtype == torch.bool or "div" in packet and not written.dtype.is_floating_point:
        return None
    return functional


def _may_alias(node: Node) -> bool:
    """Whether the node's value may share memory with an argument (when in doubt, yes)."""
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    if any(value.alias_info is not None for value in schema.returns):
        return True
    name = schema.name.partition("::")[2]
    if name in _FRESH:
        return False
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(
            target.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        )
    )


# ---------------------------------------------------------------- what does nothing at inference


def _argument(node: Node, name: str) -> Any:
    """An argument by its schema name, given or default."""
    target: Any = node.target
    for index, argument in enumerate(target._schema.arguments):
        if argument.name != name:
            continue
        if name in node.kwargs:
            return node.kwargs[name]
        if index < len(node.args) and not argument.kwarg_only:
            return node.args[index]
        return argument.default_value if argument.has_default_value() else None
    raise KeyError(name)


def _same(_editor: Editor, node: Node) -> Any:
    return node.args[0]


def _inactive_dropout(_editor: Editor, node: Node) -> Any:
    if _argument(node, "train") and _argument(node, "p") != 0:
        return None
    return node.args[0]


def _conversion(editor: Editor, node: Node) -> Any:
    """`to` and its kind: a cast where the dtype changes, else nothing."""
    source, result = tensor_value(node.args[0]), tensor_value(node)
    if source is None or result is None:
        return None
    if source.dtype == result.dtype:
        return node.args[0]
    return editor.call(node, aten._to_copy.default, node.args[0], dtype=result.dtype, value=result)


_KEEP_VALUE = [
    *(aten.contiguous.default, aten.clone.default, aten.lift_fresh_copy.default),
    *(aten.detach.default, aten.alias.default, aten.lift.default, aten.positive.default),
]
_CONVERSIONS = [
    *(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other, aten.type_as.default),
]
_DROPOUTS = [
    *(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default),
    aten.feature_alpha_dropout.default,
]

_ALWAYS: dict[Any, Rule] = {
    **dict.fromkeys(_KEEP_VALUE, _same),
    **dict.fromkeys(_CONVERSIONS, _conversion),
    **dict.fromkeys(_DROPOUTS, _inactive_dropout),
}


# ---------------------------------------------------------------- rules by operator


def _batch_norm(editor: Editor, node: Node) -> Any:
    if _argument(node, "training") or node.args[3] is None or node.args[4] is None:
        return None
    x, weight, bias, mean, variance = node.args[:5]
    norm = editor.call(
        node,
        aten._native_batch_norm_legit_no_training.default,
        *(x, weight, bias, mean, variance),
        *(_argument(node, "momentum"), _argument(node, "eps")),
    )
    return editor.call(node, operator.getitem, norm, 0, value=node.meta["val"])


def _reshape(editor: Editor, node: Node) -> Any:
    """view, flatten, unflatten: a reshape, which takes any memory layout."""
    result = tensor_value(node)
    if result is None:
        return None
    shape = [size if isinstance(size, int) else -1 for size in result.shape]
    if shape.count(-1) > 1 or (-1 in shape and 0 in shape):
        if node.target is not aten.view.default:
            return None
        shape = list(node.args[1])  # type: ignore[arg-type]
    return editor.call(node, aten.reshape.default, node.args[0], shape, value=node.meta["val"])


def _adaptive_avg_pool(editor: Editor, node: Node) -> Any:
    x, wanted = tensor_value(node.args[0]), list(_argument(node, "output_size"))
    if x is None:
        return None
    rank = len(wanted)
    if all(size == 1 for size in wanted):
        axes = list(range(-rank, 0))
        return editor.call(node, aten.mean.dim, node.args[0], axes, True, value=node.meta["val"])
    sizes = list(x.shape[-rank:])
    if not all(isinstance(size, int) for size in sizes):
        return None
    if any(size % count for size, count in zip(sizes, wanted, strict=True)):
        return None
    kernel = [size // count for size, count in zip(sizes, wanted, strict=True)]
    pool = {
        1: aten.avg_pool1d.default,
        2: aten.avg_pool2d.default,
        3: aten.avg_pool3d.default,
    }[rank]
    return editor.call(node, pool, node.args[0], kernel, kernel, value=node.meta["val"])


# Copies that fixed a layout are gone by now, so a `view` may meet a layout it refuses.
_ALWAYS[aten.view.default] = _reshape

_RULES: dict[Any, Rule] = {
    aten.batch_norm.default: _batch_norm,
    aten.flatten.using_ints: _reshape,
    aten.unflatten.int: _reshape,
    aten.view_as.default: _reshape,
    aten.reshape_as.default: _reshape,
    aten.adaptive_avg_pool1d.default: _adaptive_avg_pool,
    aten.adaptive_avg_pool2d.default: _adaptive_avg_pool,
    aten.adaptive_avg_pool3d.default: _adaptive_avg_pool,
    aten._adaptive_avg_pool2d.default: _adaptive_avg_pool,
}
