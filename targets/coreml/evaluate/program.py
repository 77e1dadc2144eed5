"""An ML Program as it stands in the specification: functions of blocks of operations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ....errors import InputFileError, UnverifiableError
from .blob import decoded
from .types import STORAGE, ListType, StateType, TensorType, Type

__all__ = ["Block", "Constant", "Function", "Name", "Operation", "Port", "Program", "read_program"]

Weights = Callable[[str, int, str, tuple[int, ...]], torch.Tensor]
"""Gives the value of a weight file: file name, offset, dtype, shape."""


_OPSETS = range(5, 10)
_BYTES = ("fp16", "int8", "uint8", "int4", "uint1", "uint2", "uint3", "uint4", "uint6")
# In which field of a TensorValue (MIL.proto) values of each dtype lie.
_HELD = {
    **dict.fromkeys((*_BYTES, "uint32"), ("bytes",)),
    **{"fp32": ("floats",), "fp64": ("doubles",), "bool": ("bools",), "string": ("strings",)},
    **{"int32": ("ints",), "int64": ("longInts",)},
    # coremltools writes numbers, and announces bytes.
    **dict.fromkeys(("int16", "uint16"), ("ints", "bytes")),
}


@dataclass(frozen=True)
class Name:
    """An argument that another operation, or a block, has computed."""

    text: str


@dataclass(frozen=True)
class Constant:
    """An argument that stands in the file: a tensor, a string, or a list or dict of them."""

    value: Any


@dataclass(frozen=True)
class Port:
    """A named value that goes in or comes out."""

    name: str
    type: Type


@dataclass(frozen=True)
class Operation:
    """`inputs` maps a parameter to its arguments, more than one where it takes many.

    Parameters that the file keeps as attributes (a `const`'s `val`, old `constexpr_*`) are
    among the inputs; `name` is the operation's own.
    """

    kind: str
    name: str
    inputs: Mapping[str, tuple[Name | Constant, ...]]
    outputs: tuple[Port, ...]
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Block:
    """Operations in order, what they take from outside, and which values leave."""

    inputs: tuple[Port, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """`opset` is the number in "CoreML7": 5 is iOS 15, 6 iOS 16, 7 iOS 17, 8 iOS 18, 9 iOS 26."""

    name: str
    inputs: tuple[Port, ...]
    block: Block
    opset: int


@dataclass(frozen=True)
class Program:
    """Functions by name; "main" is the one that runs unless another is asked for."""

    functions: Mapping[str, Function] = field(default_factory=dict)


def read_program(proto: Any, weights: Weights) -> Program:
    """Read a `MILSpec.Program` message.

    Raises:
        InputFileError: it holds something that no ML Program does.
    """
    reader = _Reader(weights)
    return Program({name: reader.function(name, f) for name, f in proto.functions.items()})


class _Reader:
    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def function(self, name: str, proto: Any) -> Function:
        opset = re.fullmatch(r"CoreML([0-9]{1,3})", proto.opset)
        if proto.opset not in proto.block_specializations or opset is None:
            raise _damaged(f"function {name} has no block for its operator set {proto.opset!r}")
        number = int(opset[1])
        if number not in _OPSETS:
            raise UnverifiableError(
                f"the evaluator does not know the operator set {proto.opset} of function {name}",
                hint="run the package on a Mac: isomorph validate PACKAGE there",
            )
        inputs = tuple(map(self.port, proto.inputs))
        return Function(name, inputs, self.block(proto.block_specializations[proto.opset]), number)

    def block(self, proto: Any) -> Block:
        return Block(
            tuple(map(self.port, proto.inputs)),
            tuple(map(self.operation, proto.operations)),
            tuple(proto.outputs),
        )

    def operation(self, proto: Any) -> Operation:
        attributes = {key: self.value(value) for key, value in proto.attributes.items()}
        name = attributes.pop("name", "")
        inputs: dict[str, tuple[Name | Constant, ...]] = {
            key: (Constant(value),) for key, value in attributes.items()
        }
        for key, argument in proto.inputs.items():
            if key in inputs:
                raise _damaged(f"{proto.type} {name} has the argument {key} twice")
            inputs[key] = tuple(map(self.binding, argument.arguments))
        outputs = tuple(map(self.port, proto.outputs))
        blocks = tuple(map(self.block, proto.blocks))
        return Operation(proto.type, str(name), inputs, outputs, blocks)

    def binding(self, proto: Any) -> Name | Constant:
        if proto.WhichOneof("binding") == "name":
            return Name(proto.name)
        return Constant(self.value(proto.value))

    def port(self, proto: Any) -> Port:
        return Port(proto.name, _type(proto.type))

    def value(self, proto: Any) -> Any:
        kind = proto.type.WhichOneof("type")
        if kind == "tensorType":
            return self.tensor(proto)
        held = proto.immediateValue.WhichOneof("value")
        if kind == "listType" and held == "list":
            return [self.value(item) for item in proto.immediateValue.list.values]
        if kind == "dictionaryType" and held == "dictionary":
            pairs = proto.immediateValue.dictionary.values
            keys = [self.value(pair.key) for pair in pairs]
            if not all(isinstance(key, str) for key in keys):
                raise _damaged("a dictionary has keys that are no strings")
            return dict(zip(keys, (self.value(pair.value) for pair in pairs), strict=True))
        raise _damaged(f"a constant of kind {kind} holds {held or 'nothing'}")

    def tensor(self, proto: Any) -> Any:
        declared = _tensor_type(proto.type.tensorType)
        if declared.shape is None or None in declared.shape:
            raise _damaged("a constant has no fixed shape")
        shape = tuple(size for size in declared.shape if size is not None)
        if proto.WhichOneof("value") == "blobFileValue":
            blob = proto.blobFileValue
            return self._weights(blob.fileName, blob.offset, declared.dtype, shape)
        held = proto.immediateValue.tensor
        field_name = held.WhichOneof("value")
        if field_name is None or field_name not in _HELD.get(declared.dtype, ()):
            raise _damaged(f"a constant of {declared.dtype} holds {field_name or 'no value'}")
        values = getattr(held, field_name).values
        try:
            if isinstance(values, bytes):
                return decoded(np.frombuffer(bytearray(values), np.uint8), declared.dtype, shape)
            if len(values) != math.prod(shape):
                raise ValueError(f"{len(values)} values")
            if declared.dtype == "string":
                texts = [v.decode() if isinstance(v, bytes) else v for v in values]
                return texts if shape else texts[0]
            return torch.tensor(list(values), dtype=STORAGE[declared.dtype]).reshape(shape)
        except (ValueError, RuntimeError, TypeError, OverflowError) as error:
            raise _damaged(f"a constant does not hold {declared}") from error


def _type(proto: Any) -> Type:
    kind = proto.WhichOneof("type")
    if kind == "tensorType":
        return _tensor_type(proto.tensorType)
    if kind == "stateType":
        return StateType(_tensor_type(proto.stateType.wrappedType.tensorType))
    if kind == "listType":
        length = proto.listType.length
        known = length.WhichOneof("dimension") == "constant"
        element = _tensor_type(proto.listType.type.tensorType)
        return ListType(element, length.constant.size if known else None)
    if kind == "dictionaryType":  # the result of classify, which holds no tensor
        return TensorType("dictionary", None)
    raise _damaged(f"a value is of kind {kind}")


def _tensor_type(proto: Any) -> TensorType:
    dtype = _dtype(proto.dataType)
    if any(d.unknown.variadic for d in proto.dimensions) or proto.rank < 0:
        return TensorType(dtype, None)
    if proto.rank not in (0, len(proto.dimensions)):
        raise _damaged(f"a value of rank {proto.rank} has {len(proto.dimensions)} sizes")
    sizes = (
        d.constant.size if d.WhichOneof("dimension") == "constant" else None
        for d in proto.dimensions
    )
    return TensorType(dtype, tuple(sizes))


def _dtype(number: int) -> str:
    """`FLOAT16` and its like as MIL writes them elsewhere: `fp16`, `int32`, `bool`."""
    from coremltools.proto import MIL_pb2

    try:
        name = MIL_pb2.DataType.Name(number).lower()
    except ValueError as error:
        raise _damaged(f"a value has the unknown dtype {number}") from error
    return {"bfloat16": "bf16"}.get(name) or name.replace("float8", "fp8").replace("float", "fp")


def _damaged(what: str) -> InputFileError:
    return InputFileError(
        f"the ML Program is damaged: {what}",
        hint="copy the whole .mlpackage folder again, or export the model again",
    )
