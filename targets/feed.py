"""What a session is given, compared with what its artifact takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..exporter.signature import Dim, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["checked_feed"]


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
            if sizes.setdefault(expected.name, size) != size:
                raise UsageError(
                    f"input {spec.name} has {expected.name}={size} where another input has "
                    f"{sizes[expected.name]}"
                )
        elif size != expected:
            raise _shape_error(spec, array)


def _shape_error(spec: TensorSpec, array: NDArray[Any]) -> UsageError:
    wanted = "x".join(str(size) for size in spec.shape) or "scalar"
    given = "x".join(str(size) for size in array.shape) or "scalar"
    return UsageError(f"input {spec.name} has shape {given} where the model takes {wanted}")
