"""Turn in-place operators on intermediate values into functional ones.

torch's own functionalisation retraces the whole program. Here each in-place
operator is decided by itself: it may become functional where nothing reads the
written memory afterwards except through the operator's own result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from .nodes import tensor_value

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph

__all__ = ["functionalize", "is_mutating"]

aten = torch.ops.aten


def is_mutating(node: Node) -> bool:
    """Whether the node writes to one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


# Composite operators without alias annotations whose result is always a new tensor.
_FRESH = {
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("linear", "matmul", "batch_norm", "instance_norm", "layer_norm", "group_norm", "rms_norm"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d"),
    *("adaptive_avg_pool2d", "adaptive_avg_pool3d", "softmax", "log_softmax", "silu", "relu6"),
    *("scaled_dot_product_attention", "upsample_nearest2d", "upsample_bilinear2d", "embedding"),
}


def functionalize(graph: FxGraph) -> None:
    """Turn `relu_` and its kind into `relu` where no alias of the written tensor is read later."""
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
    if written.dtype == torch.bool and not packet.startswith(("bitwise_", "logical_")):
        return None
    if "div" in packet and not written.dtype.is_floating_point:
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
