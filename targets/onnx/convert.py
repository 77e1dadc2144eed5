"""A `Graph` as an ONNX model in memory: translate, name, optimise, clean.

The weights of the result are views of the graph's tensors; `storage` streams
them to disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ConversionError
from ...exporter.graph import Graph, Origin
from ..unsupported import cannot_express
from . import torchlib
from .border import cast_outputs, clean, name_border, name_dims, separate_outputs
from .dialect import PLAIN, Dialect
from .origins import node_origins
from .prepare import decomposed, faulty, lacking, prepared, registry, translation_errors
from .sizes import REMEDY, inexact_sizes
from .translations import custom_translations
from .weights import plain_weights, share_weights, store_transposed

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

__all__ = ["legalised_program", "to_onnx"]


def to_onnx(
    graph: Graph,
    opset: int,
    *,
    optimize: bool,
    dialect: Dialect = PLAIN,
    origins: dict[str, Origin] | None = None,
) -> ir.Model:
    """Translate `graph`; inputs, outputs and dims carry the user's names.

    `origins`, if given, gets where each node was written, by the node's name.

    Raises:
        ConversionError: an operator has no translation, or one known to be wrong.
    """
    _require_real_border(graph)
    program = prepared(graph, opset, dialect)
    plain_weights(program)
    model = _translate(program, opset, dialect)
    separate_outputs(model)
    cast_outputs(model, graph)
    share_weights(model)
    if optimize:
        store_transposed(model)  # first: constant folding would copy every such weight
        torchlib.optimize(model)
    separate_outputs(model)
    name_border(model, graph)
    name_dims(model, graph)
    if origins is not None:
        origins.update(node_origins(model))
    clean(model)
    return model


def legalised_program(graph: Graph, opset: int, dialect: Dialect = PLAIN) -> ExportedProgram:
    """The program that `to_onnx` translates, node by node."""
    program = prepared(graph, opset, dialect)
    if torchlib.fast_path_available() and lacking(program, opset):
        return decomposed(program, opset, dialect)
    return program


def _translate(program: ExportedProgram, opset: int, dialect: Dialect) -> ir.Model:
    """Without a retrace if every operator has a translation, else with one."""
    _require_exact_sizes(program)
    if not torchlib.fast_path_available():
        if wrong := faulty(program):
            raise cannot_express("ONNX", wrong)
        return _translate_publicly(program, opset)
    if not lacking(program, opset):
        with translation_errors():
            model = torchlib.translate(program, registry(opset), opset)
        if model is not None:
            return model
        return _translate_publicly(program, opset)
    retraced = decomposed(program, opset, dialect)
    _require_exact_sizes(retraced)
    if missing := lacking(retraced, opset):
        raise cannot_express("ONNX", missing)
    with translation_errors():
        model = torchlib.translate(retraced, registry(opset), opset)
    return model if model is not None else _translate_publicly(program, opset)


def _translate_publicly(program: ExportedProgram, opset: int) -> ir.Model:
    with translation_errors():
        model: ir.Model = torchlib.export_public(program, custom_translations(), opset).model
    return model


def _require_exact_sizes(program: ExportedProgram) -> None:
    if wrong := inexact_sizes(program):
        raise cannot_express("ONNX", wrong, REMEDY)


def _require_real_border(graph: Graph) -> None:
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype.startswith("complex"):
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, and ONNX models take and return real tensors only",
                hint="pass real and imaginary parts: torch.view_as_real / view_as_complex",
            )
