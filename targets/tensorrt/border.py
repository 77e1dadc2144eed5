"""Tensors at an engine's border: what they are, and how arrays lie in their memory.

Shipped as it stands in packages for devices: imports nothing of Isomorph.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "STORED",
    "EngineInput",
    "EngineTensor",
    "decoded",
    "encoded",
    "nbytes_of",
    "precision_of",
    "sizes",
    "unfit",
]

# How values of each `DataType` that ONNX networks take and return lie in memory. numpy has no
# bfloat16: its bits are handled as uint16, and callers see float32.
STORED = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "uint16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class EngineTensor:
    """A tensor at an engine's border.

    dtype: as numpy has it, but for "bfloat16", whose arrays are float32.
    shape: -1 where the size is chosen at run time.
    on_host: whether TensorRT reads or writes it in the CPU's memory.
    """

    name: str
    dtype: str
    stored: str
    shape: tuple[int, ...]
    on_host: bool

    @property
    def array_dtype(self) -> str:
        """The dtype of the arrays that callers see."""
        return "float32" if self.dtype == "bfloat16" else self.dtype


@dataclass(frozen=True)
class EngineInput(EngineTensor):
    """An input, with the smallest and the largest shape of its profile."""

    min: tuple[int, ...]
    max: tuple[int, ...]


def unfit(tensor: EngineInput, array: NDArray[Any]) -> str | None:
    """Why an input is not one that the engine takes; None if it is."""
    if str(array.dtype) != tensor.array_dtype:
        return f"{tensor.name} is {array.dtype} where the engine takes {tensor.array_dtype}"
    spans = zip(tensor.min, array.shape, tensor.max)  # noqa: B905 - Python 3.8 has no strict
    if len(array.shape) == len(tensor.min) and all(low <= n <= high for low, n, high in spans):
        return None
    span = sizes(tensor.min)
    if tensor.min != tensor.max:
        span += f" to {sizes(tensor.max)}"
    return f"{tensor.name} is {sizes(array.shape)}, and the engine takes {span}"


def encoded(tensor: EngineTensor, array: NDArray[Any]) -> NDArray[Any]:
    """The array as it lies in memory, contiguous."""
    # `ascontiguousarray` alone makes a vector of a scalar.
    plain = np.ascontiguousarray(array).reshape(array.shape)
    return _bfloat16_bits(plain) if tensor.dtype == "bfloat16" else plain


def decoded(tensor: EngineTensor, array: NDArray[Any]) -> NDArray[Any]:
    """The array that callers see of one that came from memory."""
    if tensor.dtype != "bfloat16":
        return array
    return (array.reshape(-1).astype(np.uint32) << 16).view(np.float32).reshape(array.shape)


# Isomorph has these lines in `targets/bfloat16.py` too: a device has no Isomorph.
def _bfloat16_bits(values: NDArray[Any]) -> NDArray[Any]:
    """uint16 patterns of float32 values, rounded to nearest (ties to even)."""
    flat = values.reshape(-1)
    bits = flat.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding must not carry a NaN's pattern into that of an infinity.
    found = np.where(np.isnan(flat), (bits >> 16) | 0x40, rounded)
    return found.astype(np.uint16).reshape(values.shape)


def sizes(shape: tuple[int, ...]) -> str:
    """A shape as a reader has it: "2x3"."""
    return "x".join(map(str, shape)) or "scalar"


def nbytes_of(tensor: EngineTensor, shape: tuple[int, ...]) -> int:
    """Bytes that a tensor takes where it has `shape`."""
    count = int(np.prod(shape, dtype=np.int64))
    return count * np.dtype(tensor.stored).itemsize


# What the inspector calls dtypes, in words such as "Half" or "Row major linear FP16 format".
_WORDS = {
    **dict.fromkeys(("float", "fp32"), "float32"),
    **dict.fromkeys(("half", "fp16"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **{word: word for word in ("fp8", "fp4", "int4", "int8", "uint8", "int32", "int64", "bool")},
}


def precision_of(layer: Any) -> str:
    """The dtypes of a layer's outputs; "unknown" where the engine keeps only names."""
    outputs = layer.get("Outputs", ()) if isinstance(layer, dict) else ()
    found = set()
    for output in outputs:
        words = re.findall(r"[a-z]+\d*", str(output.get("Format/Datatype", "")).lower())
        found.add(next((_WORDS[word] for word in words if word in _WORDS), "unknown"))
    return " and ".join(sorted(found)) or "unknown"
