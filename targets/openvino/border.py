"""The user's inputs and outputs on an OpenVINO model: names, order, dtypes, bounds."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError
from ...exporter.graph import Graph
from ...exporter.signature import Dim, TensorSpec

if TYPE_CHECKING:
    import openvino

__all__ = [
    "OPENVINO_TYPES",
    "border_model",
    "input_shape",
    "input_type",
    "require_single",
    "require_types",
]

# OpenVINO's name of each dtype; complex and the wide unsigned integers have none that torch
# tensors convert to.
OPENVINO_TYPES = {
    **{"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"},
    **{"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8"},
    "bool": "boolean",
}


def require_types(graph: Graph) -> None:
    """Refuse inputs and outputs of dtypes that OpenVINO has no tensors for.

    Raises:
        ConversionError: names the input or output.
    """
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype not in OPENVINO_TYPES:
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, which OpenVINO models cannot take or return",
                hint="pass real and imaginary parts: torch.view_as_real / view_as_complex"
                if spec.dtype.startswith("complex")
                else "convert it inside the model to one of: " + ", ".join(OPENVINO_TYPES),
            )


def require_single(graph: Graph, places: list[int]) -> None:
    """Refuse computed outputs of float64: OpenVINO's plug-ins compute them in float32.

    Raises:
        ConversionError: names the output.
    """
    for spec, place in zip(graph.outputs, places, strict=True):
        if spec.dtype == "float64" and place >= 0:
            raise ConversionError(
                f"{spec.name} is float64, which OpenVINO computes in float32",
                hint="export the model in float32, or choose a format that has float64: onnx",
            )


def input_shape(spec: TensorSpec) -> openvino.PartialShape:
    """The shape with the bounds of its dynamic dims."""
    import openvino

    return openvino.PartialShape(
        [
            openvino.Dimension(size.min, -1 if size.max is None else size.max)
            if isinstance(size, Dim)
            else openvino.Dimension(size)
            for size in spec.shape
        ]
    )


def input_type(spec: TensorSpec) -> openvino.Type:
    """OpenVINO's element type of the tensor."""
    import openvino

    found: openvino.Type = getattr(openvino.Type, OPENVINO_TYPES[spec.dtype])
    return found


def border_model(model: openvino.Model | None, graph: Graph, places: list[int]) -> openvino.Model:
    """A model with the parameters and results of `graph`, in order, under their names.

    Every output gets a tensor of its own: a name belongs to a tensor, so a value that is
    returned twice, an input or a weight could not carry another.
    """
    import openvino
    from openvino import opset13 as ops

    parameters = _parameters(model, graph)
    computed = [] if model is None else [r.input_value(0) for r in model.get_results()]
    for node in [] if model is None else model.get_ops():
        for output in node.outputs():
            output.get_tensor().set_names(set())
    results, taken = [], set()
    for spec, name, place in zip(graph.outputs, output_names(graph), places, strict=True):
        source = computed[place] if place >= 0 else parameters[-1 - place].output(0)
        value = _as_declared(source, spec)
        shared = place < 0 or place in taken or value.get_node().get_type_name() == "Constant"
        if shared and value is source:
            value = _copy(value)
        taken.add(place)
        value.get_tensor().set_names({name})
        result = ops.result(value)
        result.set_friendly_name(f"{name}/sink")
        value.get_node().set_friendly_name(name)
        results.append(result)
    for parameter, spec in zip(parameters, graph.inputs, strict=True):
        parameter.set_friendly_name(spec.name)
        parameter.output(0).get_tensor().set_names({spec.name})
    bordered = openvino.Model(results, parameters, "isomorph")
    bordered.validate_nodes_and_infer_types()
    _settle_names(bordered)
    return bordered


# The name of a captured node with torch's counter, and what the frontend adds to it.
_COUNTED = re.compile(r"^(\w+?)(?:_\d+)?(/.*)$")


def _settle_names(model: openvino.Model) -> None:
    """Number operators in their order: torch's counters go on from one conversion to the next."""
    seen: Counter[str] = Counter()
    for node in model.get_ordered_ops():
        found = _COUNTED.match(node.get_friendly_name())
        if found is None or node.get_type_name() == "Result":
            continue
        base, rest = found.groups()
        node.set_friendly_name(f"{base}_{seen[base + rest]}{rest}")
        seen[base + rest] += 1


def output_names(graph: Graph) -> list[str]:
    """Names of the outputs; OpenVINO has one namespace for inputs and outputs."""
    taken = {spec.name for spec in graph.inputs}
    names: list[str] = []
    for index, spec in enumerate(graph.outputs):
        name = spec.name or f"output_{index}"
        while name in taken:
            name += "_out"
        taken.add(name)
        names.append(name)
    return names


def _copy(value: Any) -> Any:
    """The same values in memory of their own.

    A Convert to the same type or a Reshape would be optimised away, and the CPU plug-in then
    returns the memory that an earlier call's input was in (seen with OpenVINO 2026.4.1).
    """
    from openvino import opset13 as ops

    return ops.select(ops.equal(value, value), value, value).output(0)


def _parameters(model: openvino.Model | None, graph: Graph) -> list[Any]:
    """The model's parameters with the declared shapes and dtypes, one for every input."""
    from openvino import opset13 as ops

    parameters = [] if model is None else list(model.get_parameters())
    if model is None or not parameters:  # nothing is computed from an input
        return [ops.parameter(input_shape(s), input_type(s), name=s.name) for s in graph.inputs]
    if len(parameters) < len(graph.inputs):  # the frontend may drop what nothing reads
        left = {parameter.get_friendly_name(): parameter for parameter in parameters}
        parameters = [
            left.pop(name, None) or ops.parameter(input_shape(spec), input_type(spec))
            for name, spec in zip(graph.input_nodes, graph.inputs, strict=True)
        ]
        parameters += left.values()
    if len(parameters) != len(graph.inputs):
        raise ConversionError(
            f"OpenVINO's conversion made {len(parameters)} inputs of {len(graph.inputs)}",
            hint="please report this with the model's source",
        )
    for parameter, spec in zip(parameters, graph.inputs, strict=True):
        parameter.set_partial_shape(input_shape(spec))
        parameter.set_element_type(input_type(spec))
    model.validate_nodes_and_infer_types()
    return parameters


def _as_declared(value: Any, spec: TensorSpec) -> Any:
    """The value in the dtype and rank that the captured program has."""
    from openvino import opset13 as ops

    if value.get_element_type() != input_type(spec):
        value = ops.convert(value, OPENVINO_TYPES[spec.dtype]).output(0)
    rank = value.get_partial_shape().rank
    if rank.is_static and rank.get_length() != len(spec.shape) and not spec.dims:
        shape = ops.constant(list(spec.shape), dtype="int64")
        value = ops.reshape(value, shape, False).output(0)
    return value
