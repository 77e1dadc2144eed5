"""What a program does besides computing: writes to inputs and buffers, random numbers."""

from __future__ import annotations

import warnings

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from ..errors import ConversionError
from .graph import node_origin

__all__ = ["make_functional", "random_operators", "writes_to_placeholder"]


def random_operators(program: ExportedProgram) -> list[str]:
    """Random operators in the graph, each with the line that calls it."""
    found = []
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            tags = getattr(node.target, "tags", ())
            if torch.Tag.nondeterministic_seeded in tags and not _is_inactive(node):
                found.append(f"{node.target} at {node_origin(node).location or 'unknown line'}")
    return found


def _is_inactive(node: torch.fx.Node) -> bool:
    """Dropout keeps its node in eval mode, with train=False; attention with dropout_p=0."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    values = {argument.name: argument.default_value for argument in schema.arguments}
    values |= dict(zip((a.name for a in schema.arguments), node.args, strict=False))
    values |= node.kwargs
    if "train" in values or "training" in values:
        return not values.get("train", values.get("training"))
    probability = values.get("dropout_p", values.get("dropout"))
    return probability == 0


def writes_to_placeholder(program: ExportedProgram) -> bool:
    """True if an in-place operator reaches an input, weight or buffer, also through a view."""
    module = program.graph_module
    shared: set[torch.fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            shared.add(node)
        if node.op != "call_function":
            continue
        reached = [a for a in node.all_input_nodes if a in shared]
        if not reached:
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None:  # getitem on a list of views hands the alias on
            shared.add(node)
            continue
        if _writes(node, schema, shared):
            return True
        if any(result.alias_info is not None for result in schema.returns):
            shared.add(node)
    return False


_METADATA_ONLY = ("aten::detach_", "aten::requires_grad_")


def _writes(
    node: torch.fx.Node, schema: torch._C.FunctionSchema, shared: set[torch.fx.Node]
) -> bool:
    if schema.name in _METADATA_ONLY:
        return False
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(v, torch.fx.Node) and v in shared for v in values):
            return True
    return False


def make_functional(program: ExportedProgram) -> ExportedProgram:
    """The program itself if it writes to nothing it was given, else one whose writes are outputs.

    Raises:
        ConversionError: it writes to a buffer; an artifact has no state to keep it in.
    """
    if not writes_to_placeholder(program):
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functional: ExportedProgram = program.run_decompositions({})
    written = [
        spec
        for spec in functional.graph_signature.output_specs
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
    ]
    if written:
        nodes = {node.name: node for node in functional.graph_module.graph.nodes}
        told = ", ".join(
            f"{spec.target} ({node_origin(nodes[spec.arg.name]).location})" for spec in written
        )
        raise ConversionError(
            f"forward() changes the model's own state on every call: {told}",
            hint="an artifact keeps no state between calls: take the state as an input of "
            "forward() and return its new value",
        )
    return functional
