"""A `Graph` as an OpenVINO model in memory: converted, guarded, named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...exporter.graph import Graph
from ..unsupported import cannot_express
from .attention import guard_attention
from .border import border_model, input_shape, input_type, require_single, require_types
from .prepare import frontend_errors, prepared
from .recurrent import extensions
from .registry import failed_operators, untranslated

if TYPE_CHECKING:
    import openvino
    from torch.export import ExportedProgram

__all__ = ["to_openvino"]


def to_openvino(graph: Graph) -> tuple[openvino.Model, tuple[str, ...]]:
    """Convert `graph`; inputs and outputs carry the user's names, dims their bounds.

    Returns:
        The model, and notes for the user of the file.

    Raises:
        ConversionError: an operator or dtype has no translation, or one known to be wrong.
    """
    require_types(graph)
    with frontend_errors():
        program, places = prepared(graph)
        if wrong := untranslated(program):
            raise cannot_express("OpenVINO", wrong)
        require_single(graph, places)
        computes = any(place >= 0 for place in places)
        model = _translate(program, graph) if computes else None
        model = border_model(model, graph, places)
        guard_attention(model)
    return model, _notes(graph)


def _notes(graph: Graph) -> tuple[str, ...]:
    """What whoever loads the file has to know."""
    notes = []
    if graph.precision == "fp32":
        notes.append(
            "OpenVINO computes in bfloat16 by default on CPUs that have it, about 1e-3 off: "
            "compile with INFERENCE_PRECISION_HINT=f32, as the check did"
        )
    if any(spec.dtype == "int64" for spec in (*graph.inputs, *graph.outputs)):
        notes.append(
            "OpenVINO's CPU plug-in computes int64 in int32: values beyond +-2^31 wrap around"
        )
    return tuple(notes)


def _translate(program: ExportedProgram, graph: Graph) -> Any:
    import openvino
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    decoder = TorchFXPythonDecoder(
        program.module(),
        input_shapes=[input_shape(spec) for spec in graph.inputs],
        dynamic_shapes=False,
    )
    for index, spec in enumerate(graph.inputs):
        decoder.input_types[index] = openvino.OVAny(input_type(spec))
    try:
        return openvino.convert_model(decoder, extension=extensions())
    except Exception as error:
        if failed := failed_operators(program, str(error)):
            raise cannot_express("OpenVINO", failed) from error
        raise
