"""The types of MIL values, and what stands for them here."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["BITS", "STORAGE", "ListType", "StateType", "TensorType", "Type"]

STORAGE: dict[str, torch.dtype] = {
    **{"bool": torch.bool, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64},
    **{"bf16": torch.bfloat16, "int4": torch.int8, "int8": torch.int8, "int16": torch.int16},
    **{"int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8},
    **dict.fromkeys(("uint1", "uint2", "uint3", "uint4", "uint6"), torch.uint8),
    # torch has next to no arithmetic on wider unsigned integers; all their values fit here.
    **{"uint16": torch.int32, "uint32": torch.int64},
}
"""The torch dtype that holds values of each MIL dtype."""

BITS = {
    **{"uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6, "int4": 4},
    **{"uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32},
    **{"int64": 64, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64, "bool": 8},
}
"""How many bits a value of each MIL dtype takes in a file."""


@dataclass(frozen=True)
class TensorType:
    """`shape` holds None for sizes known only at run time; None as a whole for any rank."""

    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join(map(_size, self.shape))
        return f"{self.dtype}[{sizes}]"


@dataclass(frozen=True)
class ListType:
    """A list of tensors; `length` is None where it is not fixed."""

    element: TensorType
    length: int | None


@dataclass(frozen=True)
class StateType:
    """A tensor that outlives a prediction."""

    wrapped: TensorType


Type = TensorType | ListType | StateType


def _size(size: int | None) -> str:
    return "?" if size is None else str(size)
