"""A captured program as a plain function of tensors: tuple in, tuple out.

Converters know tensors only. The user's structures, None and numbers are kept
by `Graph.call`; what a mutated input becomes is an output like any other.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from .graph import Graph

__all__ = ["flat_graph", "flat_program", "refresh_outputs"]


def flat_program(graph: Graph) -> ExportedProgram:
    """A copy of `graph`'s program that takes `graph.inputs` and returns `graph.outputs`, in order.

    The graph may be rewritten, the tensors are shared. The copy carries no
    example inputs, and its `module()` takes the input tensors positionally.
    """
    from torch.export.graph_signature import InputKind, OutputKind, OutputSpec

    program = graph.copy_program()
    _rename_weights(program)
    module, signature = program.graph_module, program.graph_signature
    nodes = {node.name: node for node in module.graph.nodes}
    outputs = tuple(nodes[name] for name in graph.output_nodes)
    module.graph.output_node().args = (outputs,)
    kept = []
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT and spec.arg.name not in graph.input_nodes:
            module.graph.erase_node(nodes[spec.arg.name])  # None or a number: captured as constant
        else:
            kept.append(spec)
    signature.input_specs = kept
    signature.output_specs = [
        OutputSpec(OutputKind.USER_OUTPUT, _argument(node), target=None) for node in outputs
    ]
    module.recompile()
    _flatten_call(program, graph)
    return program


def _rename_weights(program: ExportedProgram) -> None:
    """Give weights of a submodule called `code` or `graph`, say, another path.

    Torch builds a GraphModule with the weights below their paths, and fails where its own
    attributes are in the way.
    """
    from torch import fx, nn

    taken = set(dir(fx.GraphModule)) - set(dir(nn.Module))
    taken |= vars(fx.GraphModule(nn.Module(), fx.Graph())).keys() - vars(nn.Module()).keys()
    signature = program.graph_signature
    paths = [spec.target for spec in signature.input_specs if spec.target is not None]
    moved: dict[str, str] = {}
    for path in paths:
        first, _, rest = path.partition(".")
        if first in taken:
            while first in taken or any(p.partition(".")[0] == first for p in paths):
                first += "_"
            moved[path] = f"{first}.{rest}" if rest else first
    if not moved:
        return
    for spec in signature.input_specs:
        spec.target = moved.get(spec.target, spec.target) if spec.target else spec.target
    program._state_dict = {moved.get(k, k): v for k, v in program.state_dict.items()}
    program._constants = {moved.get(k, k): v for k, v in program.constants.items()}


def flat_graph(graph: Graph) -> Graph:
    """`graph` with a flat program and call: free of the user's classes, so any process reads it."""
    from torch.utils import _pytree as pytree

    from .calling import CallStructure

    inputs = tuple(spec.name for spec in graph.inputs)
    outputs = tuple(spec.name for spec in graph.outputs)
    call = CallStructure(
        pytree.tree_structure((tuple(range(len(inputs))), {})),
        inputs,
        pytree.tree_structure(tuple(range(len(outputs)))),
        outputs,
    )
    return replace(graph, program=flat_program(graph), call=call)


def refresh_outputs(program: ExportedProgram) -> None:
    """After a rewrite, let the signature name the nodes that are outputs now."""
    outputs: Any = program.graph_module.graph.output_node().args[0]
    for spec, node in zip(program.graph_signature.output_specs, outputs, strict=True):
        spec.arg = _argument(node)


def _flatten_call(program: ExportedProgram, graph: Graph) -> None:
    """Replace the user's calling convention by one of flat tuples."""
    from torch.utils import _pytree as pytree

    entries = [copy.copy(entry) for entry in program.module_call_graph]
    signature = copy.copy(entries[0].signature)
    if signature is not None:
        signature.in_spec = pytree.tree_structure((tuple(range(len(graph.inputs))), {}))
        signature.out_spec = pytree.tree_structure(tuple(range(len(graph.outputs))))
        signature.inputs, signature.outputs = [], []
        signature.forward_arg_names = [spec.name for spec in graph.inputs]
        entries[0].signature = signature
    program._module_call_graph = entries
    program._example_inputs = None


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
