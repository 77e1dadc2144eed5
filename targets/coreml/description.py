"""What a package says goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputFileError
from ...exporter.signature import Dim, TensorSpec
from ..base import Signature
from .features import DTYPES, Feature, features

__all__ = [
    "SIGNATURE",
    "adopted",
    "listed_shapes",
    "matched",
    "read_signature",
    "stored_signature",
    "the_function",
    "write_signature",
]

SIGNATURE = "isomorph.signature"
"""Key in the package's creator-defined metadata: the model's own names, dtypes and dims."""

_DTYPES = {"FLOAT16": "float16", "FLOAT32": "float32", "DOUBLE": "float64", "INT32": "int32"}
_REMEDY = "export the model again"
_FOREIGN = (
    "convert the model with inputs and outputs in its own order, and with its own shapes and "
    "dtypes: ct.TensorType(shape=..., dtype=...)"
)


def write_signature(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """What `stored_signature` reads: Core ML's arrays do not have all dtypes and dims."""
    return json.dumps(
        {"inputs": [s.to_json() for s in inputs], "outputs": [s.to_json() for s in outputs]},
        sort_keys=True,
    )


def stored_signature(path: Path, spec: Any) -> Signature | None:
    """The signature in the package's metadata; None in one that another tool made.

    Raises:
        InputFileError: it is there, and none.
    """
    text = spec.description.metadata.userDefined.get(SIGNATURE)
    if text is None:
        return None
    try:
        document = json.loads(text)
        inputs, outputs = (
            tuple(map(TensorSpec.from_json, document[key])) for key in ("inputs", "outputs")
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputFileError(
            f"{path.name} holds a signature that cannot be read", hint=_REMEDY
        ) from error
    return Signature(inputs, outputs)


def the_function(spec: Any) -> tuple[str, Any]:
    """Name and description of the function that runs unless another is asked for."""
    description = spec.description
    if not description.functions:
        return "main", description
    name = description.defaultFunctionName
    for function in description.functions:
        if function.name == name:
            return name, function
    raise InputFileError(f"the package has no function {name!r}, its default", hint=_REMEDY)


def read_signature(path: Path, described: Any, outputs: Sequence[Any]) -> Signature:
    """Specs from a function's description; `outputs` are the types that the program declares.

    Raises:
        InputFileError: it takes or returns what is no array.
    """
    inputs = tuple(_spec(path, "input", feature) for feature in described.input)
    found = []
    for feature, declared in zip(described.output, outputs, strict=True):
        spec = _spec(path, "output", feature)
        shape = tuple(
            Dim(f"{spec.name}_{axis}", 0) if size is None else size
            for axis, size in enumerate(getattr(declared, "shape", None) or ())
        )
        found.append(replace(spec, shape=shape) if len(shape) != len(spec.shape) else spec)
    return Signature(inputs, tuple(found))


def listed_shapes(described: Any) -> dict[str, set[tuple[int, ...]]]:
    """Shapes by input name, for inputs whose shapes are listed one by one."""
    return {
        feature.name: {tuple(s.shape) for s in feature.type.multiArrayType.enumeratedShapes.shapes}
        for feature in described.input
        if feature.type.multiArrayType.WhichOneof("ShapeFlexibility") == "enumeratedShapes"
    }


def matched(
    path: Path, file: Signature, signature: Signature
) -> tuple[tuple[Feature, ...], tuple[Feature, ...]]:
    """The features of `signature`, compared with what the file has.

    Raises:
        InputFileError: the file is not of that signature.
    """
    inputs, outputs = features(signature.inputs, signature.outputs)
    for kind, found, wanted in (
        ("input", file.inputs, inputs),
        ("output", file.outputs, outputs),
    ):
        if [spec.name for spec in found] != [feature.name for feature in wanted]:
            raise _other(path, kind, _names(found), _names(wanted))
        for spec, feature in zip(found, wanted, strict=True):
            if spec.dtype != feature.dtype or not _fits(spec, feature, kind):
                raise _other(path, f"{kind} {spec.name}", _told(spec), _told(feature))
    return inputs, outputs


def adopted(
    path: Path, file: Signature, signature: Signature
) -> tuple[tuple[Feature, ...], tuple[Feature, ...]]:
    """The features of a package that another tool made, one a tensor of `signature`.

    They go by name where both have the same names, and by place where not: other tools number
    what they have no names of. The package may take more sizes than the model.

    Raises:
        InputFileError: the package takes or returns something else.
    """
    inputs, outputs = (
        tuple(_adopted(path, kind, found, wanted))
        for kind, found, wanted in (
            ("input", file.inputs, signature.inputs),
            ("output", file.outputs, signature.outputs),
        )
    )
    return inputs, outputs


def _adopted(
    path: Path, kind: str, found: Sequence[TensorSpec], wanted: Sequence[TensorSpec]
) -> Iterator[Feature]:
    if len(found) != len(wanted):
        raise _other(path, f"{kind}s", _names(found), f"{kind}s: {_names(wanted)}", _FOREIGN)
    named = {spec.name: spec for spec in found}
    by_name = named.keys() == {tensor.name for tensor in wanted}
    for place, tensor in enumerate(wanted):
        spec = named[tensor.name] if by_name else found[place]
        own = spec.shape, tensor.shape
        if spec.dtype != DTYPES.get(tensor.dtype) or not (
            own == ((1,), ()) or (len(own[0]) == len(own[1]) and all(map(_holds, *own)))
        ):
            what = f"{kind} {spec.name}"
            raise _other(path, what, _told(spec), f"{tensor.name}: {_told(tensor)}", _FOREIGN)
        yield Feature(spec.name, spec.dtype, spec.shape)


def _holds(size: int | Dim, other: int | Dim) -> bool:
    """Whether a size in the file can be every size that the model has there."""
    if not isinstance(size, Dim):
        return size == other
    least, most = (other.min, other.max) if isinstance(other, Dim) else (other, other)
    return size.min <= least and (size.max is None or (most is not None and most <= size.max))


def _fits(spec: TensorSpec, feature: Feature, kind: str) -> bool:
    """Whether the file takes every size that is asked for.

    The bounds of a computed size do not stand in the file.
    """
    return len(spec.shape) == len(feature.shape) and all(
        _contains(own, theirs) or (kind == "output" and isinstance(own, Dim))
        for own, theirs in zip(spec.shape, feature.shape, strict=True)
    )


def _contains(own: int | Dim, wanted: int | Dim) -> bool:
    if not isinstance(own, Dim) or isinstance(wanted, Dim):
        return bool(_bounds(own) == _bounds(wanted))
    return own.min <= wanted and (own.max is None or wanted <= own.max)


def _bounds(size: int | Dim) -> Any:
    if not isinstance(size, Dim):
        return size
    if size.step == 1 or size.max is None:
        return size.min, size.max
    return -(-size.min // size.step) * size.step, size.max // size.step * size.step


def _spec(path: Path, kind: str, feature: Any) -> TensorSpec:
    array = feature.type.multiArrayType
    dtype = _DTYPES.get(array.ArrayDataType.Name(array.dataType))
    if feature.type.WhichOneof("Type") != "multiArrayType" or dtype is None:
        found = feature.type.WhichOneof("Type") or "nothing"
        raise InputFileError(
            f"the {kind} {feature.name} of {path.name} is no array of numbers ({found})",
            hint="convert the model with ct.TensorType inputs and outputs: no images, and no "
            "classifier_config",
        )
    return TensorSpec(feature.name, dtype, _shape(feature.name, array))


def _shape(name: str, array: Any) -> tuple[int | Dim, ...]:
    flexible = array.WhichOneof("ShapeFlexibility")
    if flexible == "shapeRange":
        bounds = [(r.lowerBound, r.upperBound) for r in array.shapeRange.sizeRanges]
    elif flexible == "enumeratedShapes":
        rows = [tuple(s.shape) for s in array.enumeratedShapes.shapes]
        bounds = [(min(column), max(column)) for column in zip(*rows, strict=True)]
    else:
        bounds = [(size, size) for size in array.shape]
    return tuple(
        low if low == high else Dim(f"{name}_{axis}", low, high if high > 0 else None)
        for axis, (low, high) in enumerate(bounds)
    )


def _names(items: Sequence[Any]) -> str:
    return ", ".join(item.name for item in items) or "none"


def _told(item: Any) -> str:
    return f"{item.dtype} [{', '.join(map(str, item.shape))}]"


def _other(path: Path, what: str, found: str, wanted: str, hint: str = _REMEDY) -> InputFileError:
    return InputFileError(
        f"{path.name} has {what}: {found}, where its signature tells {wanted}", hint=hint
    )
