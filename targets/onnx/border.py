"""The user's names on an ONNX model, and nothing of the exporter's inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError
from ...exporter.graph import Graph
from ...exporter.signature import Dim, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["cast_outputs", "clean", "name_border", "name_dims", "separate_outputs"]


def separate_outputs(model: ir.Model) -> None:
    """Give each output a value of its own: no input, no weight, nothing twice."""
    import onnx_ir as ir

    taken: set[int] = set()
    for index, value in enumerate(model.graph.outputs):
        if value.is_graph_input() or value.is_initializer() or id(value) in taken:
            node = ir.node("Identity", [value])
            copied = node.outputs[0]
            copied.name = f"{value.name}_output_{index}"
            copied.shape, copied.type = value.shape, value.type
            model.graph.append(node)
            model.graph.outputs[index] = copied
        taken.add(id(model.graph.outputs[index]))


def name_border(model: ir.Model, graph: Graph) -> None:
    """Put the user's names on inputs and outputs, out of the way of all inner names."""
    border = [*model.graph.inputs, *model.graph.outputs]
    specs = [*graph.inputs, *graph.outputs]
    if len(border) != len(specs):
        raise ConversionError(
            f"the ONNX model has {len(model.graph.inputs)} inputs and "
            f"{len(model.graph.outputs)} outputs where the captured graph has "
            f"{len(graph.inputs)} and {len(graph.outputs)}",
            hint="please report this with the model's source",
        )
    reserved = _border_names(graph)
    owners = {id(value) for value in border}
    used = {str(value.name) for value in _values(model)} | set(reserved)
    for value in list(_values(model)):
        if id(value) not in owners and value.name in reserved:
            _rename(model, value, _unused(f"{value.name}_value", used))
    for value, name in zip(border, reserved, strict=True):
        value.name = name


def cast_outputs(model: ir.Model, graph: Graph) -> None:
    """Give outputs the dtype that the captured program has.

    torch's type promotion may put a cast after an output's node and leave the
    output at the value before it (seen with torch 2.14: a sum of float16).
    """
    import onnx_ir as ir

    for index, (value, spec) in enumerate(zip(model.graph.outputs, graph.outputs, strict=False)):
        wanted = _DTYPES.get(spec.dtype)
        if wanted is None or value.dtype is None or value.dtype.name == wanted:
            continue
        dtype = ir.DataType[wanted]
        node = ir.node("Cast", [value], {"to": int(dtype)})
        cast = node.outputs[0]
        cast.name = f"{value.name}_cast_{index}"
        cast.shape, cast.type = value.shape, ir.TensorType(dtype)
        model.graph.append(node)
        model.graph.outputs[index] = cast


_DTYPES = {
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "bool": "BOOL",
    **{f"{s}int{b}": f"{s}int{b}".upper() for s in ("", "u") for b in (8, 16, 32, 64)},
}


def _border_names(graph: Graph) -> list[str]:
    """Names of inputs, then outputs; ONNX has one namespace for both.

    A module may call an input and an output alike; the output then says so. In ONNX an empty
    name means that there is none, so the dict key "" becomes the output's position.
    """
    names = [spec.name for spec in graph.inputs]
    taken = {spec.name for spec in graph.outputs}
    for index, spec in enumerate(graph.outputs):
        name = spec.name or _unused(f"output_{index}", {*names, *taken})
        if name in names:
            name = _unused(f"{spec.name}_out", set(names))
        names.append(name)
    return names


def _unused(wish: str, used: set[str]) -> str:
    name, number = wish, 0
    while name in used:
        number += 1
        name = f"{wish}_{number}"
    used.add(name)
    return name


def _rename(model: ir.Model, value: ir.Value, name: str) -> None:
    if value.is_initializer() and value.name in model.graph.initializers:
        model.graph.initializers.pop(str(value.name))
        value.name = name
        model.graph.initializers[name] = value
    else:
        value.name = name


def _values(model: ir.Model) -> Iterator[ir.Value]:
    import onnx_ir as ir

    yield from model.graph.inputs
    yield from model.graph.initializers.values()
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        yield from node.outputs


def name_dims(model: ir.Model, graph: Graph) -> None:
    """Name dynamic sizes as the user did, and what is computed from them as expressions."""
    import onnx_ir as ir

    symbols = _symbols(graph)
    for value in _values(model):
        if value.shape is None or not any(isinstance(d, ir.SymbolicDim) for d in value.shape):
            continue
        value.shape = ir.Shape([_dim_name(size, symbols) for size in value.shape])
    for value, spec in zip(model.graph.inputs, graph.inputs, strict=True):
        value.shape = _spec_shape(spec)
    for value, spec in zip(model.graph.outputs, graph.outputs, strict=True):
        if value.shape is None or len(value.shape) == len(spec.shape):
            value.shape = _spec_shape(spec)


def _spec_shape(spec: TensorSpec) -> ir.Shape:
    import onnx_ir as ir

    return ir.Shape([size.name if isinstance(size, Dim) else size for size in spec.shape])


def _dim_name(size: Any, symbols: dict[str, str]) -> Any:
    text = getattr(size, "value", size)
    if not isinstance(text, str):
        return text
    return re.sub(r"[A-Za-z_]\w*", lambda match: symbols.get(match[0], match[0]), text)


def _symbols(graph: Graph) -> dict[str, str]:
    """The captured program's size symbols, each with the dim's name."""
    nodes = {node.name: node for node in graph.program.graph.nodes}
    names: dict[str, str] = {}
    for node_name, spec in zip(graph.input_nodes, graph.inputs, strict=True):
        shape = getattr(nodes[node_name].meta.get("val"), "shape", ())
        for symbol, size in zip(shape, spec.shape, strict=False):
            if isinstance(size, Dim) and str(symbol).isidentifier():
                names.setdefault(str(symbol), size.name)
    return names


def clean(model: ir.Model) -> None:
    """Drop traces, class names and paths; say who made the file."""
    import onnx_ir as ir

    model.producer_name, model.producer_version = "isomorph", version("isomorph")
    model.doc_string = None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.graph.doc_string = None
    for value in _values(model):
        value.metadata_props.clear()
        value.doc_string = None
    for holder in (model.graph, *model.functions.values()):
        holder.metadata_props.clear()
        holder.doc_string = None
        for node in ir.traversal.RecursiveGraphIterator(holder):
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
