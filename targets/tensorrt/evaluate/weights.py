"""Weights of dtypes that numpy does not have, read where the network keeps them.

The bindings hand such weights out as an object that tells neither values nor address: `numpy()`
returns the object itself. It is pybind11's: behind the header that every Python object has stands
a pointer to the C++ value, here `nvinfer1::Weights {type, values, count}` (NvInferRuntimeBase.h).
That this holds for the bindings in use is shown on weights whose address is known before
anything is read by it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RawWeights", "raw_weights"]

# Bytes of an element. Two 4-bit elements share a byte: torch has no such dtype to compute with.
_SIZES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e8m0fnu": 1}


@dataclass(frozen=True)
class RawWeights:
    """The bits of weights: uint16 or uint8 of shape [count], a view; `dtype` is torch's name."""

    dtype: str
    bits: NDArray[Any]


class _Weights(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("values", ctypes.c_void_p), ("count", ctypes.c_int64))


def raw_weights(module: Any, weights: Any, dtype: str) -> RawWeights | None:
    """The bits of a `Weights` of `module`, None where they cannot be read.

    The view is of the network's memory, which the caller keeps alive.
    """
    import numpy as np

    size = _SIZES.get(dtype)
    if size is None or not _layout_is_known(module):
        return None
    bits = np.dtype(f"uint{size * 8}")
    if weights.size == 0:
        return RawWeights(dtype, np.empty(0, bits))
    found = _record(weights)
    # `int` of a member is its number in C++.
    if (found.type, found.count) != (int(weights.dtype), weights.size) or not found.values:
        return None
    memory = (ctypes.c_ubyte * (size * weights.size)).from_address(found.values)
    return RawWeights(dtype, np.frombuffer(memory, bits))


@cache
def _layout_is_known(module: Any) -> bool:
    import numpy as np

    probe = np.arange(3, dtype=np.float32)
    weights = module.Weights(probe)
    found = _record(weights)
    return (found.type, found.values, found.count) == (
        int(module.DataType.FLOAT),
        probe.ctypes.data,
        probe.size,
    )


def _record(weights: Any) -> _Weights:
    header = object.__basicsize__
    address = ctypes.c_void_p.from_address(id(weights) + header).value
    return _Weights() if address is None else _Weights.from_address(address)
