"""The program's inputs and outputs in the form in which coremltools takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...exporter.graph import Graph
from ...exporter.nodes import tensor_value
from ...exporter.signature import Dim

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["border_program"]

_NARROW = ("int8", "int16", "uint8")


def border_program(program: ExportedProgram, graph: Graph) -> list[int]:
    """Change a flat program in place such that Core ML has arrays for all that goes in and out.

    Narrow integers come in as int32 and are cast; computed booleans and integers go out as
    int32, scalars as one element. The program returns each computed value once. Whole numbers
    beyond int32 that meet floats become floats, since coremltools would wrap them around.

    Returns:
        For each of `graph.outputs` its place among what the program returns; an output that is
        input i has the place `-1 - i`.
    """
    _widen_numbers(program)
    places = _return_once(program)
    _give_arrays(program)
    _take_arrays(program, graph)
    program.graph_module.recompile()
    return places


def _widen_numbers(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        tensors = [
            value
            for item in (node, *node.all_input_nodes)
            if (value := tensor_value(item)) is not None
        ]
        if schema is None or not any(value.dtype.is_floating_point for value in tensors):
            continue
        # mul.Tensor takes a number as well, and captured programs hold it as one.
        scalars = {e.name for e in schema.arguments if str(e.type) in ("number", "Tensor")}
        for place, entry in enumerate(schema.arguments[: len(node.args)]):
            if entry.name in scalars and _is_wide(node.args[place]):
                node.update_arg(place, float(node.args[place]))
        for name in scalars & set(node.kwargs):
            if _is_wide(node.kwargs[name]):
                node.update_kwarg(name, float(node.kwargs[name]))


def _is_wide(item: Any) -> bool:
    return isinstance(item, int) and not -(2**31) <= item < 2**31


def _inputs(program: ExportedProgram) -> list[Node]:
    from torch.export.graph_signature import InputKind

    nodes = {node.name: node for node in program.graph.nodes}
    return [
        nodes[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]


def _return_once(program: ExportedProgram) -> list[int]:
    inputs = _inputs(program)
    output = program.graph.output_node()
    nodes: Any = output.args[0]
    kept: list[Node] = []
    specs, places = [], []
    for node, spec in zip(nodes, program.graph_signature.output_specs, strict=True):
        if node in inputs:
            places.append(-1 - inputs.index(node))
            continue
        if node not in kept:
            kept.append(node)
            specs.append(spec)
        places.append(kept.index(node))
    if not kept:  # a program must compute something
        kept, specs = [_nothing(output, nodes[0])], program.graph_signature.output_specs[:1]
    output.args = (tuple(kept),)
    program.graph_signature.output_specs = specs
    return places


def _nothing(output: Node, like: Node) -> Node:
    import torch

    value: torch.Tensor = like.meta["val"]
    with output.graph.inserting_before(output):
        node = output.graph.call_function(torch.ops.aten.full.default, ([1], 0.0))
    node.meta = {"val": value.new_empty([1], dtype=torch.float32)}
    return node


def _give_arrays(program: ExportedProgram) -> None:
    import torch

    aten = torch.ops.aten
    graph, inputs = program.graph, _inputs(program)
    output = graph.output_node()
    given: list[Node] = []
    kept: Any = output.args[0]
    for node, spec in zip(kept, program.graph_signature.output_specs, strict=True):
        value = tensor_value(node)
        if value is not None and node not in inputs:
            with graph.inserting_before(output):
                if value.dtype in (torch.bool, torch.int8, torch.int16, torch.uint8):
                    value = value.to(torch.int32)
                    node = _called(node, aten._to_copy.default, value, dtype=torch.int32)
                if value.dim() == 0:
                    node = _called(node, aten.unsqueeze.default, value.unsqueeze(0), 0)
        given.append(node)
        spec.arg.name = node.name
    output.args = (tuple(given),)


def _called(node: Node, target: Any, value: torch.Tensor, *args: Any, **kwargs: Any) -> Node:
    made = node.graph.call_function(target, (node, *args), kwargs)
    made.meta = {**node.meta, "val": value}
    return made


def _take_arrays(program: ExportedProgram, graph: Graph) -> None:
    import torch

    dims: dict[str, Any] = {}
    for node, spec in zip(_inputs(program), graph.inputs, strict=True):
        value: torch.Tensor = node.meta["val"]
        dtype = torch.int32 if spec.dtype in _NARROW else value.dtype
        sizes = [_symbol(program, value, axis, size, dims) for axis, size in enumerate(spec.shape)]
        node.meta["val"] = value.new_empty(sizes, dtype=dtype)
        if dtype != value.dtype:
            users = list(node.users)
            with program.graph.inserting_after(_inputs(program)[-1]):
                cast = _called(node, torch.ops.aten._to_copy.default, value, dtype=value.dtype)
            for user in users:
                user.replace_input_with(node, cast)


def _symbol(
    program: ExportedProgram, value: torch.Tensor, axis: int, size: int | Dim, dims: dict[str, Any]
) -> Any:
    """A size that coremltools can read: it has no expressions such as 8*s0."""
    if not isinstance(size, Dim):
        return size
    if size.name not in dims:
        found = value.shape[axis]
        if not str(found).isidentifier():
            found = _plain(program, found, size)
        dims[size.name] = found
    return dims[size.name]


def _plain(program: ExportedProgram, expression: Any, dim: Dim) -> Any:
    import torch
    from torch.utils._sympy.value_ranges import ValueRanges

    found = expression.node.shape_env.create_unbacked_symint()
    top = dim.max if dim.max is not None else 2**31 - 1
    program._range_constraints = {
        **program.range_constraints,
        found.node.expr: ValueRanges(dim.min, top),
    }
    torch._check(found >= 0)
    return found
