"""Dynamic dims as Core ML has them: a range for each, or all sizes one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ...errors import ConversionError
from ...exporter.signature import Dim, TensorSpec
from .features import Feature
from .options import CoreMlOptions
from .quiet import coremltools

__all__ = ["MOST_SHAPES", "require_expressible", "tensor_types"]

MOST_SHAPES = 128
"""As many shapes an input of a Core ML model may list (Apple's "Flexible Input Shapes")."""


def require_expressible(inputs: Sequence[TensorSpec], options: CoreMlOptions) -> None:
    """Refuse dims that the package could not hold.

    Raises:
        ConversionError: names the dim and the choices.
    """
    dims = _dims(inputs)
    for dim in dims:
        where = next(
            f"{spec.name}.{axis}"
            for spec in inputs
            for axis, size in enumerate(spec.shape)
            if size == dim
        )
        if dim.max is None:
            raise ConversionError(
                f"the dim {dim.name} has no upper bound, and Core ML needs one",
                hint=f"give a range: --dynamic {where}={dim.name}:{dim.min}..64; or with it the "
                "sizes one by one: --set coreml.shapes=enumerated",
            )
        if dim.step > 1 and options.shapes == "range":
            raise ConversionError(
                f"the dim {dim.name} goes in steps of {dim.step}, and Core ML's ranges have none",
                hint=f"list its sizes (at most {MOST_SHAPES}): --set coreml.shapes=enumerated; or "
                f"take a range without a step, if the model can: --dynamic {where}={dim.name}:"
                f"{dim.min}..{dim.max}",
            )
    if options.shapes == "range" or not dims:
        return
    count = math.prod(len(_sizes(dim)) for dim in dims)
    if count > MOST_SHAPES:
        raise ConversionError(
            f"{count} sizes of {', '.join(dim.name for dim in dims)} would be listed, and Core ML "
            f"takes {MOST_SHAPES}",
            hint="a narrower range or a step: --dynamic "
            f"AXIS={dims[0].name}:MIN..MAX:STEP; or a range: --set coreml.shapes=range",
        )
    dynamic = [spec.name for spec in inputs if spec.dims]
    if len(dynamic) > 1 and options.release < 18:
        raise ConversionError(
            f"the inputs {', '.join(dynamic)} all have dynamic dims, and Core ML lists sizes for "
            "more than one input from iOS 18 on",
            hint="--set coreml.deployment_target=iOS18, or --set coreml.shapes=range",
        )


def tensor_types(
    inputs: Sequence[TensorSpec], features: Sequence[Feature], options: CoreMlOptions
) -> list[Any]:
    """coremltools' types of the inputs: one symbol for every dim, shared among the inputs."""
    import numpy as np

    ct = coremltools()
    dims = _dims(inputs)
    listed = _combinations(dims) if options.shapes == "enumerated" else []
    ranges = {dim.name: ct.RangeDim(dim.min, dim.max, symbol=None) for dim in dims}
    found = []
    for feature in features:
        shape: Any
        if listed and any(isinstance(size, Dim) for size in feature.shape):
            rows = [
                tuple(row[s.name] if isinstance(s, Dim) else s for s in feature.shape)
                for row in listed
            ]
            shape = ct.EnumeratedShapes(rows)
        else:
            shape = tuple(ranges[s.name] if isinstance(s, Dim) else s for s in feature.shape)
        found.append(ct.TensorType(feature.name, shape=shape, dtype=np.dtype(feature.dtype).type))
    return found


def _dims(inputs: Sequence[TensorSpec]) -> list[Dim]:
    return list({dim.name: dim for spec in inputs for dim in spec.dims}.values())


def _combinations(dims: Sequence[Dim]) -> list[dict[str, int]]:
    """Every choice of sizes."""
    names = [dim.name for dim in dims]
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*map(_sizes, dims))]


def _sizes(dim: Dim) -> range:
    return range(-(-dim.min // dim.step) * dim.step, (dim.max or 0) + 1, dim.step)
