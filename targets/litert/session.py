"""A written `.tflite` file on LiteRT's interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, InputFileError, UsageError, first_line
from ...exporter.signature import TensorSpec
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed
from ..packages import installed_version

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..watching import Value
    from .watching import WatchedModel

__all__ = ["LiteRtSession"]


class LiteRtSession(Closing):
    """A `.tflite` file on LiteRT's CPU interpreter; close it, or use it in a `with`.

    XNNPACK, LiteRT's default delegate, takes the operators it knows and computes them in the
    dtypes of the file.

    Args:
        path: the `.tflite` file.
        device: `cpu`.
        signature: what the exporter knows of inputs and outputs; the file must agree.
        watched: whether `run` asks for every value inside, so that no operator is fused with
            the next.

    Raises:
        UsageError: the device is unknown.
        InputFileError: the file is missing, corrupt, no LiteRT model, or another model's.
        ConversionError: the file is sound, but this LiteRT cannot run it.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        signature: Signature | None = None,
        *,
        watched: bool = False,
    ) -> None:
        if device.lower() != "cpu":
            raise UsageError(
                f"the LiteRT target does not know the device {device}", hint="choose cpu"
            )
        self.path = path
        self._watched = watched
        self._threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._interpreter: Any = _open(path, self._threads)
        try:
            border = _border(path, self._interpreter)
            self.evidence = self._evidence()
        except UnicodeDecodeError as error:
            raise InputFileError(
                f"{path} is damaged: a name in it is no text", hint="export the model again"
            ) from error
        self._indices = tuple({spec.name: index for spec, index in side} for side in border)
        held = Signature(*(tuple(spec for spec, _ in side) for side in border))
        if signature is not None:
            _compare(path, held, signature)
        self.inputs = (signature or held).inputs
        self.outputs = (signature or held).outputs

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name; every array is the caller's own.

        Raises:
            UsageError: a name, dtype or shape does not fit the model's inputs.
            ConversionError: LiteRT failed while it ran.
        """
        if self._interpreter is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        import numpy as np

        feed = checked_feed(inputs, self.inputs)
        if self._watched:
            names = [value.name for value in self.values()]
            found = self._inside.run(feed, names)
            return {spec.name: found[spec.name] for spec in self.outputs}
        try:
            for name, array in feed.items():
                self._interpreter.set_tensor(self._indices[0][name], array)
            self._interpreter.invoke()
            return {
                # A tensor without axes comes as a numpy scalar.
                spec.name: np.array(self._interpreter.get_tensor(self._indices[1][spec.name]))
                for spec in self.outputs
            }
        except (RuntimeError, ValueError) as error:
            raise ConversionError(
                f"LiteRT failed while running {self.path.name}: {first_line(error)}",
                hint="the runtime's kernels do not take this model's values or dtypes",
            ) from error

    def values(self) -> tuple[Value, ...]:
        """Every value inside; see `Watching`."""
        return self._inside.values()

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The outputs, and the values of `names` as further outputs; see `Watching`."""
        return self._inside.run(checked_feed(inputs, self.inputs), names)

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """A part of the file by itself; see `Watching`."""
        return self._inside.replay(given, names)

    @cached_property
    def _inside(self) -> WatchedModel:
        from .watching import WatchedModel

        inputs, outputs = self._indices
        return WatchedModel(self.path.read_bytes(), inputs, outputs, self._threads)

    def close(self) -> None:
        """Release the model's memory."""
        self._interpreter = None

    def _evidence(self) -> Evidence:
        return Evidence(
            kind="executed",
            runtime="ai-edge-litert",
            version=installed_version("ai-edge-litert") or "unknown",
            device="cpu",
            details={
                **_delegated(self._interpreter),
                **_halves(self._interpreter),
                "threads": self._threads,
            },
        )


def _open(path: Path, threads: int) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name a .tflite file")
    try:
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise InputFileError(
            f"{path} is not a LiteRT model that loads: {first_line(error)}",
            hint="the file may be truncated; export the model again",
        ) from error
    try:
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ConversionError(
            f"LiteRT cannot run a part of {path.name}: {first_line(error)}",
            hint="its CPU kernels lack that operator or dtype",
        ) from error
    return interpreter


_Side = list[tuple[TensorSpec, int]]


def _border(path: Path, interpreter: Any) -> tuple[_Side, _Side]:
    """Specs and tensor indices of inputs and outputs, in the file's order."""
    from .schema import signature_names

    details = {item["index"]: item for item in interpreter.get_tensor_details()}
    inputs, outputs = (
        [(_spec(name, details[index]), index) for name, index in side]
        for side in signature_names(path)
    )
    return inputs, outputs


def _spec(name: str, details: Mapping[str, Any]) -> TensorSpec:
    import numpy as np

    shape = tuple(int(size) for size in details["shape"])
    return TensorSpec(name, np.dtype(details["dtype"]).name, shape)


def _compare(path: Path, held: Signature, wanted: Signature) -> None:
    for kind in ("inputs", "outputs"):
        for ours, theirs in zip(getattr(held, kind), getattr(wanted, kind), strict=False):
            if (ours.name, ours.dtype, ours.shape) != (theirs.name, theirs.dtype, theirs.shape):
                raise _other_model(path, f"{kind[:-1]} {_text(ours)}, not {_text(theirs)}")
        counts = [len(getattr(side, kind)) for side in (held, wanted)]
        if counts[0] != counts[1]:
            raise _other_model(path, f"{counts[0]} {kind}, not {counts[1]}")


def _text(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.dtype} {'x'.join(map(str, spec.shape)) or 'scalar'}"


def _other_model(path: Path, difference: str) -> InputFileError:
    return InputFileError(
        f"{path} is the file of another model: it has {difference}",
        hint="export the model again, or name the file that belongs to it",
    )


def _delegated(interpreter: Any) -> dict[str, Any]:
    """Which share of the file's operators XNNPACK took, from the plan that the runtime shows.

    A DELEGATE entry stands for what lies between its inputs and outputs.
    """
    try:
        operators = interpreter._get_ops_details()
    except (AttributeError, RuntimeError):
        return {"delegate": "unknown"}
    own = [op for op in operators if op["op_name"] != "DELEGATE"]
    maker = {int(tensor): at for at, op in enumerate(own) for tensor in op["outputs"]}
    taken: set[int] = set()
    for delegate in (op for op in operators if op["op_name"] == "DELEGATE"):
        given = {int(tensor) for tensor in delegate["inputs"]}
        waiting = [int(tensor) for tensor in delegate["outputs"]]
        while waiting:
            tensor = waiting.pop()
            at = maker.get(tensor)
            if tensor in given or at is None or at in taken:
                continue
            taken.add(at)
            waiting.extend(int(source) for source in own[at]["inputs"])
    return {
        "delegate": "XNNPACK" if taken else "none",
        "delegated": f"{len(taken)} of {len(own)} operators",
    }


def _halves(interpreter: Any) -> dict[str, Any]:
    """LiteRT has no half arithmetic on CPU: float16 weights are dequantised to float32."""
    import numpy as np

    count = sum(item["dtype"] == np.float16 for item in interpreter.get_tensor_details())
    return {"half_weights": count, "half_computed_in": "float32"} if count else {}
