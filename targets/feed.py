"""What a session is given, compared with what its artifact takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..exporter.signature import Dim, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["checked_feed", "with_bounds"]


def checked_feed(
    inputs: Mapping[str, NDArray[Any]], specs: tuple[TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    """Contiguous arrays in the order of `specs`, after names, dtypes and shapes were compared.

    Where a spec says bfloat16 the array is float32, as `Session` has it.

    Raises:
        UsageError: an input is missing, unknown, or of another dtype or shape.
    """
    import numpy as np

    known = [spec.name for spec in specs]
    unknown = [name for name in inputs if name not in known]
    missing = [name for name in known if name not in inputs]
    if unknown or missing:
        problem = f"no input {', '.join(unknown)}" if unknown else f"no value for {missing[0]}"
        raise UsageError(problem, hint=f"the model's inputs are {', '.join(known)}")
    sizes: dict[str, int] = {}
    feed = {}
    for spec in specs:
        array = np.asarray(inputs[spec.name])
        _match(spec, array, sizes)
        feed[spec.name] = np.ascontiguousarray(array).reshape(array.shape)
    return feed


def _match(spec: TensorSpec, array: NDArray[Any], sizes: dict[str, int]) -> None:
    wanted = "float32" if spec.dtype == "bfloat16" else spec.dtype
    if str(array.dtype) != wanted:
        raise UsageError(
            f"input {spec.name} is {array.dtype} where the model takes {spec.dtype}"
            + (", given as float32" if wanted != spec.dtype else "")
        )
    if len(array.shape) != len(spec.shape):
        raise _shape_error(spec, array)
    for size, expected in zip(array.shape, spec.shape, strict=True):
        if isinstance(expected, Dim):
            _demand_in_range(spec.name, expected, size)
            if sizes.setdefault(expected.name, size) != size:
                raise UsageError(
                    f"input {spec.name} has {expected.name}={size} where another input has "
                    f"{sizes[expected.name]}"
                )
        elif size != expected:
            raise _shape_error(spec, array)


def _demand_in_range(name: str, dim: Dim, size: int) -> None:
    """What was checked holds for these sizes; runtimes fail on others, or compute on."""
    top = size if dim.max is None else dim.max
    if dim.min <= size <= top and size % dim.step == 0:
        return
    span = f"{dim.min}..{'' if dim.max is None else dim.max}"
    step = f" in steps of {dim.step}" if dim.step > 1 else ""
    raise UsageError(
        f"input {name} has {dim.name}={size}, and the artifact was made for {span}{step}",
        hint="export again with a wider --dynamic range",
    )


def with_bounds(
    specs: tuple[TensorSpec, ...], signature: tuple[TensorSpec, ...] | None
) -> tuple[TensorSpec, ...]:
    """`specs` as a file has them, with the signature's bounds on axes that both leave open."""
    known = {spec.name: spec for spec in signature or ()}

    def bounded(spec: TensorSpec) -> TensorSpec:
        other = known.get(spec.name)
        if other is None or len(other.shape) != len(spec.shape):
            return spec
        axes = zip(spec.shape, other.shape, strict=True)
        return replace(
            spec,
            shape=tuple(
                theirs if isinstance(own, Dim) and isinstance(theirs, Dim) else own
                for own, theirs in axes
            ),
        )

    return tuple(map(bounded, specs))


def _shape_error(spec: TensorSpec, array: NDArray[Any]) -> UsageError:
    wanted = "x".join(str(size) for size in spec.shape) or "scalar"
    given = "x".join(str(size) for size in array.shape) or "scalar"
    return UsageError(f"input {spec.name} has shape {given} where the model takes {wanted}")
