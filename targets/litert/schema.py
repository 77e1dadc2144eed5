"""What the interpreter does not tell of a `.tflite` file: the order of its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import InputFileError

__all__ = ["signature_names"]

_Names = list[tuple[str, int]]


def signature_names(path: Path) -> tuple[_Names, _Names]:
    """Names and tensor indices of the inputs and outputs of the file's first signature, in order.

    A file without signatures names its inputs and outputs by its tensors.

    Raises:
        InputFileError: the model's first signature is not of its first subgraph.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    order = (
        [graph.Inputs(at) for at in range(graph.InputsLength())],
        [graph.Outputs(at) for at in range(graph.OutputsLength())],
    )
    if not model.SignatureDefsLength():
        return tuple(  # type: ignore[return-value]
            [(graph.Tensors(index).Name().decode(), index) for index in side] for side in order
        )
    signature = model.SignatureDefs(0)
    if signature.SubgraphIndex() != 0:
        raise InputFileError(
            f"the first signature of {path.name} is not that of its first subgraph",
            hint="only files with one entry can be run and compared",
        )
    return (
        _entries(signature.Inputs, signature.InputsLength()),
        _entries(signature.Outputs, signature.OutputsLength()),
    )


def _entries(entry: Any, count: int) -> _Names:
    maps = [entry(at) for at in range(count)]
    return [(item.Name().decode(), item.TensorIndex()) for item in maps]
