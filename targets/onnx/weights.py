"""Initializers of an ONNX model: stored as their readers want them, shared where tied.

Everything here moves views; no weight is copied but lazily negated or conjugated ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ConversionError

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

__all__ = ["plain_weights", "share_weights", "store_transposed"]


def plain_weights(program: ExportedProgram) -> None:
    """Let the program's weights hold the values that they stand for.

    A view that torch marks as negated or conjugated has other bytes than values; it is
    replaced by its values. The program's tables are replaced, not written to.

    Raises:
        ConversionError: a weight is sparse, nested, quantized or otherwise without plain bytes.
    """
    import torch

    def plain(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        kind = _special_kind(value)
        if kind:
            raise ConversionError(
                f"the weight {name} is a {kind} tensor, and ONNX files hold dense ones",
                hint="store it dense before the export: to_dense(), dequantize()",
            )
        return value.resolve_conj().resolve_neg()

    for table in ("_state_dict", "_constants"):
        entries = getattr(program, table)
        setattr(program, table, {name: plain(name, value) for name, value in entries.items()})


def _special_kind(value: Any) -> str:
    import torch

    if value.is_nested:
        return "nested"
    if value.layout != torch.strided:
        return f"sparse ({str(value.layout).removeprefix('torch.')})"
    return "quantized" if value.is_quantized else ""


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
