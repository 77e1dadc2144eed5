"""A `Graph` as an ONNX model in memory: translate, name, optimise, clean.

The weights of the result are views of the graph's tensors; `storage` streams
them to disk.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError
from ...exporter.graph import Graph, node_origin
from ...exporter.legalize import is_mutating, legalize
from ...exporter.signature import Dim, TensorSpec
from ..base import Unsupported
from . import torchlib
from .translations import custom_translations, refusal

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["find_unsupported", "to_onnx"]


def to_onnx(graph: Graph, opset: int, *, optimize: bool) -> ir.Model:
    """Translate `graph`; inputs, outputs and dims carry the user's names.

    Raises:
        ConversionError: an operator has no translation, or one known to be wrong.
    """
    _require_real_border(graph)
    program = _prepared(graph)
    model = _translate(graph, program, opset)
    _separate_outputs(model)
    if optimize:
        _optimize(model)
        _store_transposed(model)
    _share_weights(model)
    _separate_outputs(model)
    _name_border(model, graph)
    _name_dims(model, graph)
    _clean(model)
    return model


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators that have no translation, after rewrites and torch's decompositions."""
    program = _prepared(graph)
    lacking = _lacking(program)
    if any(not reason for _, reason in lacking):
        program = program.run_decompositions(_decompositions())
        lacking = _lacking(program)
    found = []
    for node, reason in lacking:
        origin = node_origin(node)
        found.append(Unsupported(_operator_name(node), origin.module, origin.location, reason))
    return found


@cache
def _registry() -> torchlib.Registry:
    return torchlib.Registry(custom_translations())


def _supported(node: Node) -> bool:
    return _registry().takes(node) and not refusal(node)


def _refused_only(node: Node) -> bool:
    """Without a look into torch's registry only what we know to be wrong is rewritten."""
    return not refusal(node)


def _prepared(graph: Graph) -> ExportedProgram:
    """A copy of the graph's program, its outputs declared as the graph has them, legalised."""
    program = graph.copy_program()
    _declare_outputs(program, graph.output_nodes)
    legalize(program, _supported if torchlib.fast_path_available() else _refused_only)
    _refresh_output_names(program)
    return program


def _declare_outputs(program: ExportedProgram, names: Iterable[str]) -> None:
    """Make the nodes called `names` the program's outputs, all of one kind.

    torch's exporter leaves out the new values of mutated inputs; to it, they
    become outputs like any other.
    """
    from torch.export.graph_signature import OutputKind, OutputSpec
    from torch.utils import _pytree as pytree

    module = program.graph_module
    nodes = {node.name: node for node in module.graph.nodes}
    outputs = tuple(nodes[name] for name in names)
    module.graph.output_node().args = (outputs,)
    module.recompile()
    program.graph_signature.output_specs = [
        OutputSpec(OutputKind.USER_OUTPUT, _argument(node), target=None) for node in outputs
    ]
    entries = [copy.copy(entry) for entry in program.module_call_graph]
    signature = copy.copy(entries[0].signature)
    if signature is not None:
        signature.out_spec = pytree.tree_structure(tuple(range(len(outputs))))
        signature.outputs = [spec.arg for spec in program.graph_signature.output_specs]
        entries[0].signature = signature
    program._module_call_graph = entries


def _refresh_output_names(program: ExportedProgram) -> None:
    """After a rewrite, let the signature name the nodes that are outputs now."""
    outputs: Any = program.graph_module.graph.output_node().args[0]
    for spec, node in zip(program.graph_signature.output_specs, outputs, strict=True):
        spec.arg = _argument(node)
    entry = program.module_call_graph[0]
    if entry.signature is not None:
        entry.signature.outputs = [spec.arg for spec in program.graph_signature.output_specs]


def _argument(node: Node) -> Any:
    import torch
    from torch.export import graph_signature as kinds

    value = node.meta.get("val")
    by_type = {
        torch.SymInt: kinds.SymIntArgument,
        torch.SymFloat: kinds.SymFloatArgument,
        torch.SymBool: kinds.SymBoolArgument,
    }
    return by_type.get(type(value), kinds.TensorArgument)(name=node.name)


def _translate(graph: Graph, program: ExportedProgram, opset: int) -> ir.Model:
    refused = [(node, reason) for node in program.graph.nodes if (reason := _refusal_or_none(node))]
    if refused:
        raise _cannot_express(
            Unsupported(_operator_name(node), *_place(node), reason) for node, reason in refused
        )
    try:
        if torchlib.fast_path_available() and not any(map(is_mutating, program.graph.nodes)):
            attempt = graph_copy(program)
            model = torchlib.translate(attempt, _registry(), opset)
            if model is not None:
                return model
        return torchlib.export_public(program, custom_translations(), opset).model
    except Exception as error:  # noqa: BLE001 - torch raises anything, and the cause is kept
        raise _translation_error(graph, error) from error


def graph_copy(program: ExportedProgram) -> ExportedProgram:
    """A copy whose graph may be changed, tensors shared."""
    from ...exporter.graph import _copy_graph_module

    twin = copy.copy(program)
    twin._graph_module = _copy_graph_module(program.graph_module)
    twin._graph_signature = copy.deepcopy(program.graph_signature)
    return twin


def _translation_error(graph: Graph, error: Exception) -> ConversionError:
    if torchlib.fast_path_available():
        try:
            unsupported = find_unsupported(graph)
        except Exception:  # noqa: BLE001 - the first error is the one to tell
            unsupported = []
        if unsupported:
            return _cannot_express(unsupported)
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    return ConversionError(
        f"torch's ONNX translation failed: {text}",
        hint="run with -v for the trace; rewriting the operation that the message names may help",
    )


def _cannot_express(operators: Iterable[Unsupported]) -> ConversionError:
    lines = list(dict.fromkeys(str(item) for item in operators))
    shown = "; ".join(lines[:5]) + (f"; and {len(lines) - 5} more" if len(lines) > 5 else "")
    return ConversionError(
        f"ONNX cannot express {shown}",
        hint="rewrite that part of the model with other operators",
    )


def _lacking(program: ExportedProgram) -> list[tuple[Node, str]]:
    found = []
    for module in program.graph_module.modules():
        for node in module.graph.nodes:  # type: ignore[union-attr]
            if node.op != "call_function":
                continue
            reason = refusal(node)
            if reason or not _registry().takes(node) or is_mutating(node):
                found.append((node, reason))
    return found


def _refusal_or_none(node: Node) -> str:
    return refusal(node) if node.op == "call_function" else ""


def _decompositions() -> dict[Any, Any]:
    """torch's decompositions of whatever has no translation of its own."""
    import torch

    table: dict[Any, Any] = dict(torch._decomp.decomposition_table)
    table.update(torch.export.default_decompositions().items())
    return {
        target: function
        for target, function in table.items()
        if hasattr(target, "_schema") and not _registry().has(target)
    }


def _operator_name(node: Node) -> str:
    target: Any = node.target
    return str(target.name()) if hasattr(target, "name") else str(target)


def _place(node: Node) -> tuple[str, str]:
    origin = node_origin(node)
    return origin.module, origin.location


def _require_real_border(graph: Graph) -> None:
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype.startswith("complex"):
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, and ONNX models take and return real tensors only",
                hint="pass real and imaginary parts: torch.view_as_real / view_as_complex",
            )


# ---------------------------------------------------------------- after translation


def _optimize(model: ir.Model) -> None:
    import torch

    torch.onnx.ONNXProgram(model, None).optimize()


def _store_transposed(model: ir.Model) -> None:
    """Store a weight the way its only reader wants it, instead of transposing at load.

    torch keeps a linear layer's weight transposed; as a `Transpose` node it would
    make every runtime copy the weights. Here it is a view until it is written.
    """
    import onnx_ir as ir
    import torch

    for node in list(model.graph):
        if node.op_type != "Transpose" or node.domain:
            continue
        weight, result = node.inputs[0], node.outputs[0]
        perm = node.attributes.get("perm")
        if weight is None or perm is None or not weight.is_initializer():
            continue
        raw = getattr(weight.const_value, "raw", None)
        alone = len(weight.uses()) == 1 and not weight.is_graph_output()
        if not isinstance(raw, torch.Tensor) or not alone or result.is_graph_output():
            continue
        name = str(weight.name)
        tensor = ir.tensor_adapters.TorchTensor(raw.permute(*perm.as_ints()), name=name)
        stored = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype))
        stored.const_value = tensor
        result.replace_all_uses_with(stored)
        model.graph.remove(node, safe=True)
        model.graph.initializers.pop(name)
        model.graph.initializers[name] = stored


def _share_weights(model: ir.Model) -> None:
    """Let tied weights be one initializer, and drop those that nothing reads."""
    import torch

    first: dict[Any, ir.Value] = {}
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            model.graph.initializers.pop(name)
            continue
        raw = getattr(value.const_value, "raw", None)
        if not isinstance(raw, torch.Tensor) or value.is_graph_output() or raw.numel() < 2:
            continue
        key = (raw.data_ptr(), raw.dtype, tuple(raw.shape), raw.stride())
        if key in first:
            value.replace_all_uses_with(first[key])
            model.graph.initializers.pop(name)
        else:
            first[key] = value


def _separate_outputs(model: ir.Model) -> None:
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


def _name_border(model: ir.Model, graph: Graph) -> None:
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


def _border_names(graph: Graph) -> list[str]:
    """Names of inputs, then outputs; ONNX has one namespace for both.

    A module may call an input and an output alike; the output then says so.
    """
    names = [spec.name for spec in graph.inputs]
    for spec in graph.outputs:
        name = spec.name
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


def _name_dims(model: ir.Model, graph: Graph) -> None:
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


def _clean(model: ir.Model) -> None:
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
        if value.const_value is not None and hasattr(value.const_value, "metadata_props"):
            value.const_value.metadata_props.clear()
            value.const_value.doc_string = None
    for holder in (model.graph, *model.functions.values()):
        holder.metadata_props.clear()
        holder.doc_string = None
        for node in ir.traversal.RecursiveGraphIterator(holder):
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
