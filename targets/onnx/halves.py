"""How ONNX Runtime computes an artifact's half-precision operators, read back from its own graph.

The CPU provider has float32 kernels for most operators. For a float16 one it puts casts
around the operator, and says so nowhere but in the model that it saves after optimising.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["describe", "half_operators"]

# They move values, or convert them; what they are called with says nothing about arithmetic.
_MOVING = frozenset(
    (
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"),
        *("Unsqueeze", "Where", "Shape", "ConstantOfShape", "DepthToSpace", "SpaceToDepth"),
    )
)


def half_operators(path: Path) -> dict[str, int]:
    """How many operators of each type in an ONNX file compute with half-precision operands."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    counts: dict[str, int] = {}
    halves = {int(onnx.TensorProto.FLOAT16), int(onnx.TensorProto.BFLOAT16)}
    floats = {*halves, int(onnx.TensorProto.FLOAT)}
    if not any(t.data_type in halves for t in model.graph.initializer) and not _casts(model):
        return counts
    model = onnx.shape_inference.infer_shapes(model)
    for graph in _graphs(model.graph):
        types = {t.name: t.data_type for t in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            types[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            # Shape inference knows no operators of other domains: those keep their operands' type.
            kept = next((t for n in node.input if (t := types.get(n)) in floats), None)
            for name in node.output:
                if not types.get(name) and kept is not None:
                    types[name] = kept
            if node.op_type not in _MOVING and any(types.get(n) in halves for n in node.input):
                counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


def describe(written: dict[str, int], run: dict[str, int]) -> str:
    """One sentence: how many half operators there are, and what the runtime made of them."""
    total, kept = sum(written.values()), sum(run.values())
    if not kept:
        return f"all {total} computed in float32"
    names = ", ".join(sorted(run))
    return f"{total} written, {kept} computed in half ({names}), the others in float32"


def _casts(model: Any) -> bool:
    """Whether anything is cast, which is how half values arise without half weights."""
    return any(node.op_type == "Cast" for graph in _graphs(model.graph) for node in graph.node)


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
