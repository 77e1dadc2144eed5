"""A written package: computed by the evaluator, or run by Apple's runtime on macOS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import ConversionError, InputFileError, UsageError
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed
from ..int32 import require_int32
from .description import (
    adopted,
    listed_shapes,
    matched,
    read_signature,
    stored_signature,
    the_function,
)
from .features import Feature

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...exporter.signature import TensorSpec
    from ..watching import Value
    from .evaluating import EvaluatingRunner

__all__ = ["CoreMlSession", "Runner"]


class Runner(Protocol):
    """Computes the arrays of a package: features in, features out, by name."""

    @property
    def evidence(self) -> Evidence: ...

    @property
    def readings(self) -> tuple[str, ...]: ...

    def __call__(
        self, arrays: Mapping[str, NDArray[Any]], reading: str
    ) -> Mapping[str, NDArray[Any]]: ...


class CoreMlSession(Closing):
    """An `.mlpackage` read back from disk; close it, or use it in a `with`.

    `readings` are the ways in which Core ML may sum products of float16; a program without
    float16 has none.

    Args:
        path: the package's folder.
        device: "cpu": evaluated here, or run by Apple's runtime on macOS; "gpu", "ne" and "all"
            exist on macOS alone.
        signature: the user's names, dtypes and dims; None: those in the package's metadata, or
            what Core ML itself knows of a package that another tool made. Such a package's
            inputs and outputs go by place where their names are not the user's; the evidence
            says so.
        evaluated: evaluate it on macOS as well.

    Raises:
        InputFileError: the package is missing, corrupt, or not what `signature` says.
        MissingRequirementError: the device is there on a Mac alone.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        signature: Signature | None = None,
        *,
        evaluated: bool = False,
    ) -> None:
        from .apple import AppleRunner, require_device
        from .evaluate.package import read_package
        from .evaluating import EvaluatingRunner

        apple = require_device(device) and not evaluated
        self.path = path
        package = read_package(path)
        name, described = the_function(package.spec)
        function = package.program.functions.get(name)
        if function is None:
            raise InputFileError(
                f"{path.name} describes the function {name}, which its program lacks",
                hint="export the model again",
            )
        types = {port.name: port.type for port in _ports(function)}
        file = read_signature(path, described, [types.get(o.name) for o in described.output])
        stored = stored_signature(path, package.spec)
        given = signature or stored or file
        # Only what Isomorph wrote is bound to have the names that it would give.
        match = adopted if stored is None else matched
        self._inputs, self._outputs = match(path, file, given)
        self.inputs, self.outputs = given.inputs, given.outputs
        self._listed = listed_shapes(described)
        self._runner: Runner | None = (
            AppleRunner(path, device, name) if apple else EvaluatingRunner(package, function)
        )
        self.readings = self._runner.readings
        self.evidence = _told_names(self._runner.evidence, (*self._inputs, *self._outputs), given)

    def run(self, inputs: Mapping[str, NDArray[Any]], reading: str = "") -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        A package with states starts each run with fresh ones.

        Raises:
            UsageError: a name, dtype or shape does not fit, or an int64 is beyond int32, in
                which Core ML computes.
            UnverifiableError: an operator, or an edge of one, whose result is not documented.
            ConversionError: Apple's runtime failed while it ran.
        """
        return self._returned(self._open_runner()(self._arrays(inputs), reading))

    def values(self) -> tuple[Value, ...]:
        """What can be watched; see `Watching`. Apple's runtime shows nothing."""
        called = self._called()
        return tuple(
            replace(value, inputs=tuple(called.get(name, name) for name in value.inputs))
            for value in (self._inside().values() if self._is_evaluated() else ())
        )

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """Outputs, and the values of `names`; see `Watching`."""
        found = self._inside().watching(self._arrays(inputs), names)
        return {**{name: found[name] for name in names}, **self._returned(found)}

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone; see `Watching`."""
        features = {
            spec.name: feature for spec, feature in zip(self.inputs, self._inputs, strict=True)
        }
        arrays = {
            features[name].name if name in features else name: _as_array(array, features[name])
            if name in features
            else array
            for name, array in given.items()
        }
        found = self._inside().replay(arrays, names)
        return {name: found[name] for name in names}

    def _called(self) -> dict[str, str]:
        """The user's name of an input by that in the package."""
        pairs = zip(self._inputs, self.inputs, strict=True)
        return {feature.name: spec.name for feature, spec in pairs}

    def _open_runner(self) -> Runner:
        if self._runner is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        return self._runner

    def _is_evaluated(self) -> bool:
        from .evaluating import EvaluatingRunner

        return isinstance(self._open_runner(), EvaluatingRunner)

    def _inside(self) -> EvaluatingRunner:
        from .evaluating import EvaluatingRunner

        runner = self._open_runner()
        if not isinstance(runner, EvaluatingRunner):
            raise NotImplementedError("Apple's runtime shows no values inside a package")
        return runner

    def _arrays(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What the package takes for `inputs`."""
        feed = checked_feed(inputs, self.inputs)
        require_int32(feed, "Core ML")
        arrays = {
            feature.name: _as_array(array, feature)
            for array, feature in zip(feed.values(), self._inputs, strict=True)
        }
        self._require_listed(arrays)
        return arrays

    def _returned(self, found: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {
            spec.name: _as_tensor(np.asarray(found[feature.name]), spec)
            for spec, feature in zip(self.outputs, self._outputs, strict=True)
        }

    def close(self) -> None:
        """Unmap the weights."""
        self._runner = None

    def _require_listed(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name, shapes in self._listed.items():
            if arrays[name].shape not in shapes:
                some = ", ".join("x".join(map(str, shape)) for shape in sorted(shapes)[:5])
                raise UsageError(
                    f"input {name} has a shape that the package does not list",
                    hint=f"it lists {some}" + (", ..." if len(shapes) > 5 else ""),
                )


def _as_array(array: NDArray[Any], feature: Feature) -> NDArray[Any]:
    shaped = array.reshape(array.shape or (1,)) if feature.shape else array
    return shaped.astype(feature.dtype, copy=False)


def _as_tensor(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """The model's dtype and rank; a shape that does not fit is left for the caller to see.

    Raises:
        ConversionError: an integer is beyond the model's dtype, in which Core ML does not compute.
    """
    if not spec.shape and array.shape == (1,):
        array = array.reshape(())
    if array.size and spec.dtype in ("int8", "int16", "uint8"):
        bounds = np.iinfo(spec.dtype)
        for value in (int(array.min()), int(array.max())):
            if not bounds.min <= value <= bounds.max:
                raise ConversionError(
                    f"output {spec.name} comes to {value}, beyond {spec.dtype}: Core ML computes "
                    "it in int32",
                    hint="cast to int32 in the model before the arithmetic",
                )
    return np.array(array, dtype=spec.dtype)


def _told_names(evidence: Evidence, found: Sequence[Feature], given: Signature) -> Evidence:
    """The evidence with what else the file calls a tensor, where that is not what it was asked."""
    specs = (*given.inputs, *given.outputs)
    called = {
        spec.name: feature.name
        for spec, feature in zip(specs, found, strict=True)
        if spec.name != feature.name
    }
    if not called:
        return evidence
    return replace(evidence, details={**evidence.details, "names in the package": called})


def _ports(function: Any) -> Iterator[Any]:
    yield from function.inputs
    for operation in function.block.operations:
        yield from operation.outputs
