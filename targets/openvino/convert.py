"""A `Graph` as an OpenVINO model in memory: converted, guarded, named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ConversionError
from ...exporter.graph import Graph
from ..unsupported import cannot_express
from .attention import guard_attention
from .border import border_model, input_shape, input_type, require_types
from .prepare import frontend_errors, prepared
from .registry import untranslated

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
    program, places = prepared(graph)
    if wrong := untranslated(program):
        raise cannot_express("OpenVINO", wrong)
    model = _translate(program, graph)
    model = border_model(model, graph, places)
    notes = guard_attention(model)
    return model, notes


def _translate(program: ExportedProgram, graph: Graph) -> Any:
    import openvino
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    with frontend_errors():
        decoder = TorchFXPythonDecoder(
            program.module(),
            input_shapes=[input_shape(spec) for spec in graph.inputs],
            dynamic_shapes=False,
        )
        for index, spec in enumerate(graph.inputs):
            decoder.input_types[index] = openvino.OVAny(input_type(spec))
        model = openvino.convert_model(decoder)
    return model
