"""Weights stored as float16, in LiteRT's usual form: a float16 tensor and a DEQUANTIZE to float32.

LiteRT's CPU kernels and XNNPACK compute in float32; they take such weights from this form and
no other. The file is half the size, the arithmetic is float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ConversionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["with_half_weights"]

# Operators whose weights are the model's (a batch norm may have been folded into them): these
# are rounded. Other constants become float16 only where that loses nothing.
_WEIGHTED = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"),
    *("FULLY_CONNECTED", "BATCH_MATMUL", "GATHER"),
)
_LEAST_ELEMENTS = 16
_LARGEST_FILE = 2**31 - 1


def with_half_weights(content: bytes) -> bytes:
    """`content` with its float32 weights of two or more dimensions as float16.

    Raises:
        ConversionError: the file is too large to be written again.
    """
    from ai_edge_litert import schema_py_generated as schema

    if len(content) > _LARGEST_FILE:
        raise ConversionError(
            "the float32 form of the model is above 2 GB, and cannot be turned into float16",
            hint="leave --precision out",
        )
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    kinds = _kinds_by_tensor(model, graph, schema)
    dequantize: list[Any] = []
    stored: dict[int, int] = {}
    for index in range(len(graph.tensors)):
        tensor = graph.tensors[index]
        values = _weight(model, tensor, schema)
        if values is None or not _may_be_half(values, kinds.get(index, set())):
            continue
        if tensor.buffer not in stored:
            stored[tensor.buffer] = _add_buffer(model, values.astype(np.float16), schema)
        dequantize.append(_dequantized(model, graph, index, stored[tensor.buffer], schema))
    graph.operators = dequantize + graph.operators
    _drop_unused(model, set(stored))
    return _packed(model)


def _kinds_by_tensor(model: Any, graph: Any, schema: Any) -> dict[int, set[str]]:
    """Names of the operators that read each tensor."""
    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if name[0] != "_"}
    kinds: dict[int, set[str]] = {}
    for operator in graph.operators:
        name = names.get(model.operatorCodes[operator.opcodeIndex].builtinCode, "")
        for index in operator.inputs:
            kinds.setdefault(int(index), set()).add(name)
    for index in graph.outputs:
        kinds.setdefault(int(index), set()).add("output")
    return kinds


def _weight(model: Any, tensor: Any, schema: Any) -> NDArray[Any] | None:
    data = model.buffers[tensor.buffer].data
    shape = () if tensor.shape is None else tuple(tensor.shape)
    if tensor.type != schema.TensorType.FLOAT32 or data is None or len(shape) < 2:
        return None
    values = np.frombuffer(np.asarray(data, dtype=np.uint8).tobytes(), "<f4")
    return values if values.size >= _LEAST_ELEMENTS else None


def _may_be_half(values: NDArray[Any], kinds: set[str]) -> bool:
    if not kinds or "output" in kinds:
        return False
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.array_equal(np.isfinite(half), np.isfinite(values)):
        return False
    return kinds <= set(_WEIGHTED) or np.array_equal(
        half.astype(np.float32), values, equal_nan=True
    )


def _add_buffer(model: Any, values: NDArray[Any], schema: Any) -> int:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.astype("<f2").tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def _dequantized(model: Any, graph: Any, index: int, buffer: int, schema: Any) -> Any:
    """An operator that makes tensor `index` from the float16 values in `buffer`."""
    tensor = graph.tensors[index]
    half = schema.TensorT()
    half.shape, half.shapeSignature = tensor.shape, tensor.shapeSignature
    half.hasRank = tensor.hasRank
    half.type, half.buffer = schema.TensorType.FLOAT16, buffer
    half.name = tensor.name + b"/float16"
    graph.tensors.append(half)
    tensor.buffer = 0  # by the format's rule empty: the operator fills it
    operator = schema.OperatorT()
    operator.opcodeIndex = _opcode(model, schema)
    operator.inputs, operator.outputs = [len(graph.tensors) - 1], [index]
    return operator


def _opcode(model: Any, schema: Any) -> int:
    wanted = schema.BuiltinOperator.DEQUANTIZE
    for at, code in enumerate(model.operatorCodes):
        if code.builtinCode == wanted:
            return at
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode = wanted, wanted
    code.version = 3  # the first that takes float16
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def _drop_unused(model: Any, replaced: set[int]) -> None:
    used = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    for index in replaced - used:
        model.buffers[index].data = None


def _packed(model: Any) -> bytes:
    import flatbuffers

    class Aligned(flatbuffers.Builder):  # type: ignore[misc]
        """Weights start at multiples of 16 bytes, as the schema's `force_align` asks."""

        def CreateNumpyVector(self, x: NDArray[Any]) -> int:  # noqa: N802 - overrides
            if x.dtype != np.uint8:
                return int(super().CreateNumpyVector(x))
            self.StartVector(1, x.size, 16)
            self.head = self.Head() - x.size
            self.Bytes[self.Head() : self.Head() + x.size] = x.tobytes()
            return int(self.EndVector())

    builder = Aligned(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
