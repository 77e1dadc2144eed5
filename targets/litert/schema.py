"""What the interpreter does not tell of a `.tflite` file, and names put in the user's order."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import InputFileError

__all__ = ["ordered", "signature_names", "tensor_names"]

_Names = list[tuple[str, int]]


def signature_names(path: Path) -> tuple[_Names, _Names]:
    """Names and tensor indices of the inputs and outputs of the file's first signature, in order.

    A file without signatures names its inputs and outputs by its tensors.

    Raises:
        InputFileError: the model's first signature is not of its first subgraph.
    """
    model = _model(path.read_bytes())
    graph = model.Subgraphs(0)
    if not model.SignatureDefsLength():
        order = (
            [graph.Inputs(at) for at in range(graph.InputsLength())],
            [graph.Outputs(at) for at in range(graph.OutputsLength())],
        )
        inputs, outputs = (
            [(graph.Tensors(index).Name().decode(), index) for index in side] for side in order
        )
        return inputs, outputs
    signature = model.SignatureDefs(0)
    if signature.SubgraphIndex() != 0:
        raise InputFileError(
            f"the first signature of {path.name} is not that of its first subgraph",
            hint="only files with one entry can be run and compared",
        )
    inputs, outputs = (
        [(name.decode(), index) for name, index, _ in _entries(signature, side)]
        for side in ("Inputs", "Outputs")
    )
    return inputs, outputs


def ordered(content: bytes, names: tuple[Sequence[str], Sequence[str]]) -> bytes:
    """`content` with the entries of its signature, which the converter sorts, in order of `names`.

    A vector of tables is a vector of distances, each from its own place: they are exchanged.
    """
    changed = bytearray(content)
    signature = _model(content).SignatureDefs(0)
    for side, wanted in zip(("Inputs", "Outputs"), names, strict=True):
        entries = _entries(signature, side)
        table = {name.decode(): at for name, _, at in entries}
        field = {"Inputs": 4, "Outputs": 6}[side]
        start = signature._tab.Vector(signature._tab.Offset(field)) if entries else 0
        for number, name in enumerate(wanted):
            place = start + 4 * number
            struct.pack_into("<I", changed, place, table[name] - place)
    return bytes(changed)


def tensor_names(content: bytes, message: str) -> str | None:
    """Names of the tensors, results last, of the operator that a runtime's message is about."""
    graph = _model(content).Subgraphs(0)
    if (match := re.search(r"Node number (\d+) \(", message)) is not None:
        number = int(match[1])
        if number < graph.OperatorsLength():
            return _tensors(graph, graph.Operators(number))
    if (match := re.search(r"builtin opcode '(\w+)'", message)) is not None:
        return _first_of_kind(content, match[1])
    return None


def _first_of_kind(content: bytes, kind: str) -> str | None:
    from ai_edge_litert import schema_py_generated as schema

    model = _model(content)
    graph = model.Subgraphs(0)
    for at in range(graph.OperatorsLength()):
        code = model.OperatorCodes(graph.Operators(at).OpcodeIndex()).BuiltinCode()
        if getattr(schema.BuiltinOperator, kind, None) == code:
            return _tensors(graph, graph.Operators(at))
    return None


def _tensors(graph: Any, operator: Any) -> str:
    indices = [operator.Inputs(at) for at in range(operator.InputsLength())]
    indices += [operator.Outputs(at) for at in range(operator.OutputsLength())]
    return " ".join(graph.Tensors(index).Name().decode() for index in indices if index >= 0)


def _model(content: bytes) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.Model.GetRootAs(content, 0)


def _entries(signature: Any, side: str) -> list[tuple[bytes, int, int]]:
    """Name, tensor index and position in the file of each entry."""
    maps = [getattr(signature, side)(at) for at in range(getattr(signature, f"{side}Length")())]
    return [(item.Name(), item.TensorIndex(), item._tab.Pos) for item in maps]
