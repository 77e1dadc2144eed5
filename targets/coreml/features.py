"""How a user's tensor stands in a package: what Core ML calls a feature.

Core ML's arrays are float32, float16 (from iOS 16) or int32, of rank 1 to 5, and names are
identifiers. Both the conversion and the session go by what is said here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConversionError
from ...exporter.signature import Dim, TensorSpec

__all__ = ["Feature", "features", "require_features", "told"]

DTYPES = {
    **{"float16": "float16", "float32": "float32"},
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "bool"), "int32"),
}
"""The dtype of the array that carries a tensor of each dtype."""

MAX_RANK = 5
"""The most axes that Core ML's arrays and operators have."""

# Words of MIL's own (coremltools 9.0, `NameSanitizer`).
_RESERVED = {
    *("any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false"),
    *("string", "state", "bf16", "fp16", "fp32", "fp64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
}


@dataclass(frozen=True)
class Feature:
    """A tensor in the file: `shape` is never empty."""

    name: str
    dtype: str
    shape: tuple[int | Dim, ...]


def features(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[tuple[Feature, ...], tuple[Feature, ...]]:
    """The features of a signature; all names differ, since MIL has one namespace for both."""
    taken: set[str] = set()

    def feature(spec: TensorSpec, suffix: str) -> Feature:
        name = re.sub(r"[^A-Za-z0-9_]", "_", spec.name)
        if not re.match(r"[A-Za-z_]", name):
            name = f"_{name}"
        if name in _RESERVED:
            name += "_"
        while name in taken:
            name += suffix
        taken.add(name)
        return Feature(name, DTYPES.get(spec.dtype, spec.dtype), spec.shape or (1,))

    found = tuple(feature(spec, "_") for spec in inputs)
    return found, tuple(feature(spec, "_out") for spec in outputs)


def require_features(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], release: int
) -> None:
    """Refuse tensors that no feature can carry.

    Raises:
        ConversionError: names the input or output.
    """
    for kind, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            what = f"the {kind} {spec.name}"
            if spec.dtype not in DTYPES:
                raise ConversionError(
                    f"{what} is {spec.dtype}, which Core ML has no arrays of",
                    hint=_DTYPE_HINTS.get(
                        spec.dtype, "convert it inside the model to one of: " + ", ".join(DTYPES)
                    ),
                )
            if spec.dtype == "float16" and release < 16:
                raise ConversionError(
                    f"{what} is float16, which Core ML takes from iOS 16 on",
                    hint="--set coreml.deployment_target=iOS16, or a later one",
                )
            if len(spec.shape) > MAX_RANK:
                raise ConversionError(
                    f"{what} has {len(spec.shape)} axes, and Core ML has {MAX_RANK} at most",
                    hint="flatten some of them in the model",
                )
            if 0 in spec.shape:
                raise ConversionError(
                    f"{what} is empty, which Core ML's arrays cannot be",
                    hint="leave it out of what the model takes and returns",
                )


_DTYPE_HINTS = {
    "float64": "export the model in float32, or choose a format that has float64: onnx",
    "bfloat16": "export the model in float32; --precision fp16 makes halves",
    **dict.fromkeys(
        ("complex64", "complex128"),
        "pass real and imaginary parts: torch.view_as_real / view_as_complex",
    ),
}


def told(spec: TensorSpec, feature: Feature) -> str:
    """A feature's description in the package: `float32 [batch (1..16), 4]`."""
    sizes = ", ".join(map(_size, spec.shape))
    carried = f", as {feature.dtype}" if feature.dtype != spec.dtype else ""
    shaped = ", in an array of one element" if not spec.shape else ""
    named = f"; {spec.name} in the model" if feature.name != spec.name else ""
    return f"{spec.dtype} [{sizes}]{carried}{shaped}{named}"


def _size(size: int | Dim) -> str:
    if not isinstance(size, Dim):
        return str(size)
    step = f" in steps of {size.step}" if size.step > 1 else ""
    return f"{size.name} ({size.min}..{'' if size.max is None else size.max}{step})"
