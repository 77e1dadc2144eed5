"""Attention in a form that OpenVINO's CPU plug-in computes rightly.

The plug-in compiles matmul -> softmax -> matmul of rank 3 or 4 into one kernel ("snippets").
OpenVINO 2026.4.1 gets it wrong in two cases (measured, see docs/openvino.md):

- with static shapes, when the query, key and value are slices of one permuted tensor and the
  number of tokens equals the number of heads: relative RMS error 0.1 to 0.3. It needs OpenVINO's
  attention operator; `prepare` decomposes attention, and the products are right;
- with a dynamic number of tokens, when the first call has one token and a later one at least 16:
  relative RMS error 1 to 90, garbage. The products have it too, and `convert_model` fuses some of
  them into its operator by itself, so both are cured here.

The kernel does not take rank 5, so the product before the softmax is made with leading axes of
size 1. The arithmetic is the same, the plug-in then runs matmul and softmax one by one, and
whoever loads the file is safe, whatever the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openvino

__all__ = ["guard_attention"]

_RANK = 5  # the kernel takes 3 and 4

# What may stand between the product and the softmax in that kernel.
_BETWEEN = {
    *("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Power", "Select", "Clamp"),
    *("Abs", "Exp", "Tanh", "Sigmoid", "Relu", "Negative", "Convert", "Reshape", "Squeeze"),
    *("Unsqueeze", "Broadcast", "FakeQuantize", "Where"),
}


def guard_attention(model: openvino.Model) -> None:
    """Rewrite, in place, every product that feeds a softmax and could meet the faults above."""
    fused = [n for n in model.get_ops() if n.get_type_name() == "ScaledDotProductAttention"]
    for node in fused:
        _spell_out(node)
    if fused:
        model.validate_nodes_and_infer_types()
    done: set[str] = set()
    for node in model.get_ordered_ops():
        if node.get_type_name() not in ("Softmax", "ReduceMax", "Exp"):
            continue
        for product in _products_before(node):
            if product.get_friendly_name() not in done and _at_risk(product):
                done.add(product.get_friendly_name())
                _raise_rank(product)
    if done:
        model.validate_nodes_and_infer_types()


def _spell_out(attention: Any) -> None:
    """Undo, where tokens vary, what `convert_model` fused from products; it is never causal."""
    from openvino import opset13 as ops

    q, k, v, *rest = attention.input_values()
    shape, keys = q.get_partial_shape(), k.get_partial_shape()
    if attention.get_attributes()["causal"] or shape.rank.is_dynamic or keys.rank.is_dynamic:
        return
    if not (shape[-2].is_dynamic or keys[-2].is_dynamic):
        return
    if len(rest) > 1:
        scale = rest[1]
    elif shape[-1].is_static:
        kind = q.get_element_type().to_dtype().type
        scale = ops.constant(kind(shape[-1].get_length() ** -0.5)).output(0)
    else:
        return
    scores = ops.matmul(ops.multiply(q, scale), k, False, True)
    if rest:
        mask = rest[0]
        if mask.get_element_type().get_type_name() == "boolean":
            kind = q.get_element_type().to_dtype().type
            mask = ops.select(mask, ops.constant(kind(0)), ops.constant(kind("-inf"))).output(0)
        scores = ops.add(scores, mask)
    mixed = ops.matmul(ops.softmax(scores, -1), v, False, False)
    for port in list(attention.output(0).get_target_inputs()):
        port.replace_source_output(mixed.output(0))


def _products_before(softmax: Any) -> list[Any]:
    """The matrix products that reach `softmax` through elementwise operators."""
    found, waiting, seen = [], [softmax.input_value(0).get_node()], set()
    while waiting:
        node = waiting.pop()
        kind = node.get_type_name()
        if kind == "MatMul":
            found.append(node)
        elif kind in _BETWEEN and node.get_friendly_name() not in seen:
            seen.add(node.get_friendly_name())
            waiting += [value.get_node() for value in node.input_values()]
    return found


def _at_risk(product: Any) -> bool:
    shape = product.get_output_partial_shape(0)
    if shape.rank.is_dynamic or shape.rank.get_length() not in (3, 4):
        return False
    return bool(shape[-2].is_dynamic or shape[-1].is_dynamic)


def _raise_rank(product: Any) -> None:
    import numpy as np
    from openvino import opset13 as ops

    first, second = product.input_values()
    rank = product.get_output_partial_shape(0).rank.get_length()
    axes = ops.constant(np.arange(_RANK - rank, dtype=np.int64))
    attributes = product.get_attributes()
    raised = ops.matmul(
        ops.unsqueeze(first, axes),
        ops.unsqueeze(second, axes),
        attributes["transpose_a"],
        attributes["transpose_b"],
    )
    result = ops.squeeze(raised, axes)
    for port in list(product.output(0).get_target_inputs()):
        port.replace_source_output(result.output(0))
