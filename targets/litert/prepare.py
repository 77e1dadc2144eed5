"""A graph's program made ready for litert_torch: static, plain tensors, float32 inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, IsomorphError
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import legalize
from ...exporter.nodes import tensor_value
from ..base import Unsupported
from ..unsupported import cannot_express, unsupported
from .faults import fault
from .library import library
from .replacements import replacements

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = [
    "decomposed",
    "find_unsupported",
    "holds_halves",
    "lacking",
    "library_errors",
    "prepared",
]

aten = torch.ops.aten

_NARROW = (torch.float16, torch.bfloat16)
_BY_RULE = {
    *(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default),
    *(aten.adaptive_max_pool3d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.scatter.reduce, aten.scatter_reduce.two, aten.aminmax.default, aten.rrelu.default),
    *(aten.neg.default, aten.relu.default, aten.masked_select.default),
}
_NO_CHOICE = (
    "leave --dynamic out and give the size with --input, one file for each size; or choose a "
    "format that takes dynamic axes, such as onnx"
)


def prepared(graph: Graph) -> ExportedProgram:
    """A flat copy of the graph's program, legalised, with tensors that the library reads right.

    Raises:
        ConversionError: an axis is dynamic, a tensor at the border or a weight has no form here.
    """
    _require_static(graph)
    _require_border(graph)
    program = flat_program(graph)
    legalize(program, _supported)
    refresh_outputs(program)
    _require_known_sizes(program)
    _plain_constants(program)
    _widen(program)
    values = [node.meta["val"] for node in program.graph.nodes if node.name in graph.input_nodes]
    examples = tuple(torch.zeros(value.shape, dtype=value.dtype) for value in values)
    program._example_inputs = (examples, {})
    return program


def decomposed(program: ExportedProgram) -> ExportedProgram:
    """`program` in the operators that litert_torch lowers.

    Raises:
        ConversionError: torch cannot retrace it.
    """
    with library_errors("torch's decomposition"):
        return library().decomposed(program, replacements())


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators without a right lowering, after rewrites and decompositions."""
    program = prepared(graph)
    if wrong := faulty(program):
        return wrong
    with library_errors("litert-torch's decomposition"):
        return lacking(library().lowered_operators(decomposed(program)))


def holds_halves(graph: Graph) -> bool:
    """Whether weights of the graph are float16."""
    return any(
        isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float16
        for tensor in graph.tensors().values()
    )


def faulty(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a captured program that the library would convert wrongly."""
    return [
        unsupported(node, reason)
        for node in program.graph.nodes
        if node.op == "call_function" and (reason := fault(node))
    ]


def lacking(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a decomposed program that have no lowering."""
    return [
        unsupported(node)
        for node in program.graph.nodes
        if node.op == "call_function" and _is_operator(node) and not library().lowers(node)
    ]


@contextmanager
def library_errors(doing: str) -> Iterator[None]:
    """The libraries raise anything here; tell the cause in one line."""
    try:
        yield
    except IsomorphError:
        raise
    except Exception as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConversionError(
            f"{doing} failed: {text}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error


def _is_operator(node: Node) -> bool:
    import operator

    return node.target is not operator.getitem and node.target is not library().constant


def _supported(node: Node) -> bool:
    """Whether litert_torch does without the shared rules: it decomposes most operators itself."""
    return node.target not in _BY_RULE


def _require_static(graph: Graph) -> None:
    """Refuse axes that the user made dynamic; sizes that depend on values are found later."""
    dims = [f"{dim.name} of {spec.name}" for spec in graph.inputs for dim in spec.dims]
    if dims:
        raise ConversionError(
            f"LiteRT files hold fixed sizes, and {dims[0]} is dynamic", hint=_NO_CHOICE
        )


def _require_known_sizes(program: ExportedProgram) -> None:
    found = [
        unsupported(node, "the size of its result depends on values")
        for node in program.graph.nodes
        if any(
            isinstance(value, torch.Tensor) and any(not isinstance(s, int) for s in value.shape)
            for value in torch.utils._pytree.tree_leaves(node.meta.get("val"))
        )
    ]
    if found:
        raise cannot_express("LiteRT", found)


def _require_border(graph: Graph) -> None:
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype.startswith("complex") or spec.dtype == "bfloat16":
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, which LiteRT models cannot take or return",
                hint="let the model take and return float32 there"
                if spec.dtype == "bfloat16"
                else "pass real and imaginary parts: torch.view_as_real / view_as_complex",
            )


def _plain_constants(program: ExportedProgram) -> None:
    """Give the program dense, contiguous tensors of its own dictionaries.

    litert_torch 0.10 recognises constants by address and shape; a copy that it makes of a
    non-contiguous tensor dies at once, and the next one at the same address passes for it.
    """
    for name in ("_state_dict", "_constants"):
        tensors = getattr(program, name)
        plain = {key: _plain(key, value) for key, value in tensors.items()}
        setattr(program, name, plain)


def _plain(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout is not torch.strided or value.is_quantized:
        raise ConversionError(
            f"the weight {name} is {value.layout if not value.is_quantized else 'quantised'}, "
            "and LiteRT files made here hold dense floating-point and integer tensors",
            hint="make it dense before the export",
        )
    return _like(value, value.detach().resolve_conj().resolve_neg().contiguous())


def _like(source: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` as a Parameter where `source` is one: the program's signature says which are."""
    if isinstance(source, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=False)
    return tensor


def _widen(program: ExportedProgram) -> None:
    """Compute half-precision operators in float32, for LiteRT's CPU kernels have no others.

    Casts to a half type become casts to float32; inputs and outputs keep their dtypes.
    """
    weights = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    output = program.graph.output_node()
    for node in list(program.graph.nodes):
        if node.op == "placeholder":
            _widen_placeholder(program, node, weights.get(node.name))
        elif node.op == "call_function":
            node.args, node.kwargs = torch.utils._pytree.tree_map(_wide, (node.args, node.kwargs))
    results: Any = output.args[0]
    narrowed = []
    for item in results:
        value = tensor_value(item)
        if value is not None and value.dtype in _NARROW:
            with program.graph.inserting_before(output):
                cast = program.graph.call_function(
                    aten._to_copy.default, (item,), {"dtype": value.dtype}
                )
            cast.meta = dict(item.meta)
            item = cast
        narrowed.append(item)
    output.args = (tuple(narrowed),)
    program.graph_module.recompile()
    refresh_outputs(program)


def _widen_placeholder(program: ExportedProgram, node: Node, target: str | None) -> None:
    value = tensor_value(node)
    if value is None or value.dtype not in _NARROW:
        return
    if target is None:
        with program.graph.inserting_after(node):
            cast = program.graph.call_function(
                aten._to_copy.default, (node,), {"dtype": torch.float32}
            )
        cast.meta = {**node.meta, "val": value.to(torch.float32)}
        node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)
        return
    node.meta = {**node.meta, "val": value.to(torch.float32)}
    for tensors in (program.state_dict, program.constants):
        if isinstance(tensors.get(target), torch.Tensor):
            tensors[target] = _like(tensors[target], tensors[target].detach().to(torch.float32))


def _wide(item: Any) -> Any:
    return torch.float32 if item in _NARROW and isinstance(item, torch.dtype) else item
