"""Initializers of an ONNX model: stored as their readers want them, shared where tied.

Everything here moves views; no weight is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["share_weights", "store_transposed"]


def store_transposed(model: ir.Model) -> None:
    """Store a weight the way its only reader wants it, instead of transposing at load.

    torch keeps a linear layer's weight transposed; as a `Transpose` node it would
    make every runtime copy the weights. Here it is a view until it is written.
    """
    import onnx_ir as ir
    import torch

    for node in list(model.graph):
        if node.op_type != "Transpose" or node.domain:
            continue
        weight, result = node.inputs[0], node.outputs[0]
        perm = node.attributes.get("perm")
        if weight is None or perm is None or not weight.is_initializer():
            continue
        raw = getattr(weight.const_value, "raw", None)
        alone = len(weight.uses()) == 1 and not weight.is_graph_output()
        if not isinstance(raw, torch.Tensor) or not alone or result.is_graph_output():
            continue
        name = str(weight.name)
        tensor = ir.tensor_adapters.TorchTensor(raw.permute(*perm.as_ints()), name=name)
        stored = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype))
        stored.const_value = tensor
        result.replace_all_uses_with(stored)
        model.graph.remove(node, safe=True)
        model.graph.initializers.pop(name)
        model.graph.initializers[name] = stored


def share_weights(model: ir.Model) -> None:
    """Let tied weights be one initializer, and drop those that nothing reads."""
    import torch

    first: dict[Any, ir.Value] = {}
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            model.graph.initializers.pop(name)
            continue
        raw = getattr(value.const_value, "raw", None)
        if not isinstance(raw, torch.Tensor) or value.is_graph_output() or raw.numel() < 2:
            continue
        key = (raw.data_ptr(), raw.dtype, tuple(raw.shape), raw.stride())
        if key in first:
            value.replace_all_uses_with(first[key])
            model.graph.initializers.pop(name)
        else:
            first[key] = value
