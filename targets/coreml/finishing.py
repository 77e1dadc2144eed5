"""The user's names, outputs and metadata in a specification that coremltools wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import ConversionError
from ...exporter.graph import Graph
from .description import SIGNATURE, write_signature
from .features import Feature, told
from .options import CoreMlOptions

__all__ = ["COMPUTE_UNITS", "finish"]

COMPUTE_UNITS = "isomorph.compute_units"
"""Key in the package's creator-defined metadata."""


def finish(
    spec: Any,
    graph: Graph,
    inputs: Sequence[Feature],
    outputs: Sequence[Feature],
    places: Sequence[int],
    options: CoreMlOptions,
    versions: Mapping[str, str],
) -> None:
    """Change a `Model` message in place: names, outputs in order, descriptions, metadata.

    Args:
        inputs, outputs: what `graph`'s tensors are called in the file.
        places: from `border_program`.
        versions: of the packages that made it, for the metadata.

    Raises:
        ConversionError: the specification is not of the signature that was asked for.
    """
    function = spec.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    description = spec.description
    if len(description.input) != len(inputs):
        raise _changed(f"made {len(description.input)} inputs of {len(inputs)}")
    renamed = {
        port.name: feature.name for port, feature in zip(function.inputs, inputs, strict=True)
    }
    _make_room(block, {f.name for f in (*inputs, *outputs)}, renamed)
    _rename(function, block, renamed)
    types = dict(_types(function, block))
    constant = {o.outputs[0].name for o in block.operations if o.type == "const"}
    computed = list(block.outputs)
    entry = [port.name for port in function.inputs]
    sources = [computed[place] if place >= 0 else entry[-1 - place] for place in places]
    kept = set(entry) | constant | {s for s in sources if sources.count(s) > 1}
    features = dict(zip(computed, description.output, strict=True))
    features |= dict(zip(entry, description.input, strict=True))
    made = []
    for source, feature in zip(sources, outputs, strict=True):
        made.append(description.__class__().output.add())
        made[-1].CopyFrom(features[source])
        made[-1].name = feature.name
        if source in kept:
            _copy(block, source, feature.name, types[source])
    _rename(
        function,
        block,
        {s: f.name for s, f in zip(sources, outputs, strict=True) if s not in kept},
    )
    del block.outputs[:]
    block.outputs.extend(feature.name for feature in outputs)
    del description.output[:]
    description.output.extend(made)
    for found, feature in zip(description.input, inputs, strict=True):
        found.name = feature.name
    for kind, found_features, specs, wanted in (
        ("input", description.input, graph.inputs, inputs),
        ("output", description.output, graph.outputs, outputs),
    ):
        for found, tensor, feature in zip(found_features, specs, wanted, strict=True):
            _demand(kind, found, feature)
            found.shortDescription = told(tensor, feature)
    _describe(description.metadata, options, versions)
    description.metadata.userDefined[SIGNATURE] = write_signature(graph.inputs, graph.outputs)


def _make_room(block: Any, names: set[str], renamed: dict[str, str]) -> None:
    """Rename what would be called like an input or output."""
    taken = names | {port.name for port in _ports(block)} | set(renamed)
    for name in [port.name for port in _ports(block)]:
        if name in names:
            free = f"{name}_inner"
            while free in taken:
                free += "_"
            taken.add(free)
            renamed.setdefault(name, free)


def _rename(function: Any, block: Any, names: Mapping[str, str]) -> None:
    for port in function.inputs:
        port.name = names.get(port.name, port.name)
    _rename_block(block, names)


def _rename_block(block: Any, names: Mapping[str, str]) -> None:
    for port in block.inputs:
        port.name = names.get(port.name, port.name)
    for operation in block.operations:
        for argument in operation.inputs.values():
            for binding in argument.arguments:
                if binding.WhichOneof("binding") == "name":
                    binding.name = names.get(binding.name, binding.name)
        for port in operation.outputs:
            port.name = names.get(port.name, port.name)
        for inner in operation.blocks:
            _rename_block(inner, names)
    block.outputs[:] = [names.get(name, name) for name in block.outputs]


def _ports(block: Any) -> Iterator[Any]:
    yield from block.inputs
    for operation in block.operations:
        yield from operation.outputs
        for inner in operation.blocks:
            yield from _ports(inner)


def _types(function: Any, block: Any) -> Iterator[tuple[str, Any]]:
    for port in (*function.inputs, *_ports(block)):
        yield port.name, port.type


def _copy(block: Any, source: str, name: str, kind: Any) -> None:
    """An output of its own for a value that is an input, a constant or returned twice."""
    operation = block.operations.add(type="identity")
    attribute = operation.attributes["name"]
    attribute.type.tensorType.dataType = 2  # STRING
    attribute.immediateValue.tensor.strings.values.append(name)
    operation.inputs["x"].arguments.add(name=source)
    operation.outputs.add(name=name, type=kind)


def _demand(kind: str, found: Any, wanted: Feature) -> None:
    """The feature's dtype, and its rank where the file holds it."""
    array = found.type.multiArrayType
    dtype = array.ArrayDataType.Name(array.dataType).lower()
    if dtype != wanted.dtype:
        raise _changed(f"wrote {kind} {found.name} as {dtype} where {wanted.dtype} was asked for")
    if array.shape and len(array.shape) != len(wanted.shape):
        raise _changed(
            f"wrote {kind} {found.name} with {len(array.shape)} axes where it has "
            f"{len(wanted.shape)}"
        )


def _describe(metadata: Any, options: CoreMlOptions, versions: Mapping[str, str]) -> None:
    metadata.author = options.author or ""
    metadata.license = options.license or ""
    metadata.shortDescription = options.description or ""
    metadata.versionString = options.version or ""
    metadata.userDefined.clear()
    for package, version in versions.items():
        metadata.userDefined[f"{package}.version"] = version
    metadata.userDefined[COMPUTE_UNITS] = options.compute_units


def _changed(what: str) -> ConversionError:
    return ConversionError(
        f"coremltools' conversion {what}", hint="please report this with the model's source"
    )
