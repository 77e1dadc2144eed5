"""Graphs on disk: `.graph.pt2`, torch's archive with our names and structure beside it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import ConversionError, InputFileError, UsageError
from ..publishing import destination_errors
from .calling import CallStructure, Constant
from .graph import Attempt, Graph, Provenance
from .signature import TensorSpec

__all__ = ["SUFFIX", "load_graph", "save_graph"]

SUFFIX = ".graph.pt2"
_MEMBER = "isomorph.json"


def save_graph(graph: Graph, path: str | Path) -> Path:
    """Write the graph, weights included.

    Raises:
        UsageError: the name does not end with `.graph.pt2`.
        ConversionError: the arguments hold a type that cannot be written.
        DestinationError: the file cannot be written.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIX):
        raise UsageError(f"{path} does not end with {SUFFIX}")
    try:
        text = json.dumps(_document(graph))
    except (NotImplementedError, TypeError) as error:
        raise ConversionError(f"the graph's arguments cannot be saved: {error}") from error
    partial = path.with_name(f".{path.name.removesuffix('.pt2')}.partial.pt2")
    with destination_errors(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.export.save(graph.program, partial, extra_files={_MEMBER: text})
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def load_graph(path: str | Path) -> Graph:
    """Read a graph back, without running code that the file may hold.

    Raises:
        InputFileError: not a saved graph, damaged, or of a torch version that reads otherwise.
    """
    from .checkpoint import load_checkpoint

    path = Path(path)
    program = load_checkpoint(path).program
    document = _member(path)
    if program is None or document is None:
        raise InputFileError(f"{path} is no saved graph", hint="write one with Graph.save")
    written = document["provenance"]["torch_version"]
    try:
        return _graph(program, document)
    except (KeyError, TypeError, ValueError) as error:
        raise InputFileError(
            f"{path} was written with torch {written} and cannot be read by {torch.__version__}: "
            f"{error}",
            hint=f"install torch=={written.partition('+')[0]}, or trace the checkpoint again",
        ) from error


def _member(path: Path) -> dict[str, Any] | None:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if n.endswith(f"/extra/{_MEMBER}")]
        if not names:
            return None
        document: dict[str, Any] = json.loads(archive.read(names[0]))
        return document


def _document(graph: Graph) -> dict[str, Any]:
    return {
        "inputs": [spec.to_json() for spec in graph.inputs],
        "outputs": [spec.to_json() for spec in graph.outputs],
        "input_nodes": graph.input_nodes,
        "output_nodes": graph.output_nodes,
        "call": {
            "input_tree": pytree.treespec_dumps(graph.call.input_tree),
            "input_leaves": _leaves(graph.call.input_leaves),
            "output_tree": pytree.treespec_dumps(graph.call.output_tree),
            "output_leaves": _leaves(graph.call.output_leaves),
            "mutated": graph.call.mutated,
        },
        "provenance": asdict(graph.provenance),
        "notes": graph.notes,
        "precision": graph.precision,
    }


def _leaves(leaves: Sequence[str | Constant]) -> list[Any]:
    return [
        {"tensor": leaf} if isinstance(leaf, str) else {"constant": leaf.value} for leaf in leaves
    ]


def _graph(program: torch.export.ExportedProgram, document: dict[str, Any]) -> Graph:
    call, origin = document["call"], document["provenance"]

    def leaves(entries: list[dict[str, Any]]) -> tuple[str | Constant, ...]:
        return tuple(e["tensor"] if "tensor" in e else Constant(e["constant"]) for e in entries)

    return Graph(
        program=program,
        inputs=tuple(TensorSpec.from_json(d) for d in document["inputs"]),
        outputs=tuple(TensorSpec.from_json(d) for d in document["outputs"]),
        input_nodes=tuple(document["input_nodes"]),
        output_nodes=tuple(document["output_nodes"]),
        call=CallStructure(
            pytree.treespec_loads(call["input_tree"]),
            leaves(call["input_leaves"]),
            pytree.treespec_loads(call["output_tree"]),
            leaves(call["output_leaves"]),
            tuple((a, b) for a, b in call["mutated"]),
        ),
        provenance=Provenance(
            origin["source_sha256"],
            origin["architecture"],
            origin["torch_version"],
            tuple(Attempt(**attempt) for attempt in origin["attempts"]),
        ),
        notes=tuple(document["notes"]),
        precision=document.get("precision", "fp32"),
    )
