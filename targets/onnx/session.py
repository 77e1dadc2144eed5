"""A written ONNX file on ONNX Runtime."""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import (
    ConversionError,
    InputFileError,
    MissingRequirementError,
    UsageError,
    first_line,
)
from ...exporter.signature import Dim, TensorSpec
from ..base import Evidence, Signature
from ..bfloat16 import from_bits, to_bits
from ..closing import Closing
from ..feed import checked_feed, with_bounds
from ..tf32 import tf32_allowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..watching import Value
    from .watching import WatchedFile

__all__ = ["LAYOUT_OPTIMIZER", "OnnxSession"]

LAYOUT_OPTIMIZER = "NchwcTransformer"

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_REMEDY = {
    "cpu": 'run: pip install "isomorph[onnx]"',
    "cuda": "run: pip uninstall onnxruntime; "
    'pip install "isomorph[onnx-cuda]" (the two wheels overwrite each other)',
}

# Above this many bytes ONNX Runtime's repacked copies of the weights are switched off: they
# would double the memory, and the kernels compute the same products from the mapped file.
_PREPACK_LIMIT = 1_000_000_000

# onnx.TensorProto.BFLOAT16; running a file needs no onnx package.
_BFLOAT16 = 16

_DTYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class OnnxSession(Closing):
    """An ONNX file loaded on ONNX Runtime; close it, or use it in a `with`.

    Args:
        path: the `.onnx` file; external data is looked for beside it.
        device: `cpu` or `cuda`.
        signature: bounds of dims, which an ONNX file does not hold.
        optimized: whether ONNX Runtime may rewrite the graph before it runs it.

    Raises:
        MissingRequirementError: ONNX Runtime or the device is missing.
        InputFileError: the file is missing, corrupt or no ONNX model.
        ConversionError: the file is sound, but this ONNX Runtime cannot run it.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        signature: Signature | None = None,
        *,
        optimized: bool = True,
    ) -> None:
        self.path = path
        self.optimized = optimized
        self._device = _known_device(device)
        self._file: WatchedFile | None = None
        self._session: Any
        self._session, self._halves = _open(path, self._device, optimized)
        border = (self._session.get_inputs(), self._session.get_outputs())
        for kind, arguments in zip(("input", "output"), border, strict=True):
            _require_tensors(path, kind, arguments)
        self.inputs, self.outputs = (tuple(map(_spec, arguments)) for arguments in border)
        if signature is not None:
            self.inputs = with_bounds(self.inputs, signature.inputs)
        self.evidence = self._evidence()

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype or shape does not fit the model's inputs.
            ConversionError: ONNX Runtime failed while it ran.
        """
        if self._session is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        feed = checked_feed(inputs, self.inputs)
        names = [spec.name for spec in self.outputs]
        try:
            values = self._compute(names, feed)
        except Exception as error:
            raise ConversionError(
                f"ONNX Runtime failed while running {self.path.name}: {first_line(error)}",
                hint="check that the sizes of the inputs are ones the model accepts",
            ) from error
        return dict(zip(names, values, strict=True))

    def _compute(self, names: list[str], feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run; bfloat16 goes in and out by its bits, since numpy has no such dtype."""
        if all(spec.dtype != "bfloat16" for spec in (*self.inputs, *self.outputs)):
            values: list[NDArray[Any]] = self._session.run(names, feed)
            return values
        given = {spec.name: _ort_value(feed[spec.name], spec.dtype) for spec in self.inputs}
        return [_array(value) for value in self._session.run_with_ort_values(names, given)]

    def values(self) -> tuple[Value, ...]:
        """What can be watched; see `Watching`."""
        return self._watched().values()

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """Outputs, and the values of `names`; see `Watching`."""
        return self._watched().run(checked_feed(inputs, self.inputs), names)

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone; see `Watching`."""
        return self._watched().replay(given, names)

    def _watched(self) -> WatchedFile:
        if self._file is None:
            from .watching import WatchedFile

            left_out = _left_out(_written_halves(self.path))
            self._file = WatchedFile(
                self.path, lambda: _settings(self.path, self.optimized), left_out
            )
        return self._file

    def close(self) -> None:
        """Release the model's memory."""
        self._file = None
        self._session = None

    def _evidence(self) -> Evidence:
        import onnxruntime

        details: dict[str, Any] = {
            "provider": self._session.get_providers()[0],
            "optimized": self.optimized,
        }
        if _weighs_more_than(self.path, _PREPACK_LIMIT):
            details["prepacking"] = False
        if self._halves is not None:
            details["half operators"] = self._halves
            details["disabled_optimizers"] = [LAYOUT_OPTIMIZER]
        return Evidence(
            kind="executed",
            runtime="onnxruntime",
            version=onnxruntime.__version__,
            device=self._device,
            details=details,
        )


def _known_device(device: str) -> str:
    kind = device.partition(":")[0].lower()
    if kind not in _PROVIDERS:
        raise UsageError(
            f"the ONNX target does not know the device {device}",
            hint=f"choose {' or '.join(_PROVIDERS)}",
        )
    return kind


def _open(path: Path, device: str, optimized: bool) -> tuple[Any, str | None]:
    """A session, and how it computes half-precision operators (None: there are none)."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingRequirementError(
            "running ONNX files needs onnxruntime, which is not installed", hint=_REMEDY[device]
        )
    import onnxruntime

    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        raise MissingRequirementError(
            f"the installed ONNX Runtime {onnxruntime.__version__} has no {provider}",
            hint=_REMEDY[device],
        )
    _require_file(path)
    settings = _settings(path, optimized)
    written = _written_halves(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        saved = Path(folder) / "optimized.onnx"
        if written:
            settings.optimized_model_filepath = str(saved)
        try:
            session = onnxruntime.InferenceSession(
                str(path),
                settings,
                providers=[(provider, _provider_options(device))],
                disabled_optimizers=_left_out(written),
            )
        except Exception as error:
            raise _load_error(path, error) from error
        halves = _told(written, saved)
    session.disable_fallback()
    ran = session.get_providers()[0]
    if ran != provider:
        raise MissingRequirementError(
            f"ONNX Runtime was asked for {provider} and came up with {ran}",
            hint="check the GPU driver and that the CUDA libraries ONNX Runtime needs are found",
        )
    return session, halves


def _provider_options(device: str) -> dict[str, str]:
    """ONNX Runtime's CUDA provider would use TF32 where nothing is said."""
    return {"use_tf32": str(int(tf32_allowed()))} if device == "cuda" else {}


def _written_halves(path: Path) -> dict[str, int] | None:
    """Half-precision operators of a file by type; None where they cannot be read."""
    if importlib.util.find_spec("onnx") is None or _weighs_more_than(path, _PREPACK_LIMIT):
        return None
    from .halves import half_operators

    try:
        return half_operators(path)
    except Exception:  # noqa: BLE001 - a damaged file is ONNX Runtime's to refuse
        return None


def _holds_bfloat16(path: Path) -> bool:
    if importlib.util.find_spec("onnx") is None:
        return False
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return any(tensor.data_type == _BFLOAT16 for tensor in model.graph.initializer)


def _left_out(written: dict[str, int] | None) -> list[str]:
    """ONNX Runtime 1.32 crashes where it blocks the layout of half convolutions for a CPU."""
    return [LAYOUT_OPTIMIZER] if written is None or written else []


def _told(written: dict[str, int] | None, saved: Path) -> str | None:
    if written is None:
        return "unknown"
    if not written:
        return None
    from .halves import describe, half_operators

    return describe(written, half_operators(saved)) if saved.is_file() else "unknown"


def _ort_value(array: NDArray[Any], dtype: str) -> Any:
    import onnxruntime

    if dtype != "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(to_bits(array), _BFLOAT16)


def _array(value: Any) -> NDArray[Any]:
    """A result as an array; bfloat16 is read from memory, for which ONNX Runtime has no method."""
    import numpy as np

    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[Any] = value.numpy()
        return array
    shape = tuple(value.shape())
    if 0 in shape:
        return np.zeros(shape, np.float32)
    address = ctypes.cast(value.data_ptr(), ctypes.POINTER(ctypes.c_uint16))
    return from_bits(np.ctypeslib.as_array(address, shape=shape))


def _settings(path: Path, optimized: bool) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if not optimized:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if _weighs_more_than(path, _PREPACK_LIMIT):
        settings.add_session_config_entry("session.disable_prepacking", "1")
    return settings


def _weighs_more_than(path: Path, limit: int) -> bool:
    data = path.with_name(path.name + ".data")
    return path.stat().st_size + (data.stat().st_size if data.is_file() else 0) > limit


def _require_file(path: Path) -> None:
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name a .onnx file")
    if path.stat().st_size == 0:
        raise InputFileError(f"{path} is empty", hint="export the model again")


def _load_error(path: Path, error: Exception) -> Exception:
    kind, text = type(error).__name__, first_line(error)
    if "bfloat16" in text or ("NOT_IMPLEMENTED" in text and _holds_bfloat16(path)):
        return ConversionError(
            f"ONNX Runtime cannot run the bfloat16 operators of {path.name} here: {text}",
            hint="its CPU provider has next to none: use --precision fp16, or write bf16 with "
            "--no-validate for another runtime",
        )
    if kind == "NotImplemented" or "NOT_IMPLEMENTED" in text:
        return ConversionError(
            f"ONNX Runtime has no implementation for a part of {path.name}: {text}",
            hint="try another opset (--set opset=...) or a newer onnxruntime",
        )
    if "Unsupported model IR version" in text or "is under development" in text:
        return MissingRequirementError(
            f"{path.name} is newer than the installed ONNX Runtime: {text}",
            hint="run: pip install -U onnxruntime",
        )
    return InputFileError(
        f"{path} is not an ONNX model that loads: {text}",
        hint="the file may be truncated, or its .data file missing; export the model again",
    )


def _require_tensors(path: Path, kind: str, arguments: Iterable[Any]) -> None:
    for argument in arguments:
        if not argument.type.startswith("tensor("):
            raise InputFileError(
                f"the {kind} {argument.name} of {path.name} is a {argument.type}, not a tensor",
                hint="only files that take and return tensors can be run and compared; for "
                "scikit-learn classifiers export with zipmap off",
            )


def _spec(argument: Any) -> TensorSpec:
    """A tensor at the file's border, from ONNX Runtime's description of it."""
    kind = argument.type.removeprefix("tensor(").removesuffix(")")
    shape = tuple(
        size if isinstance(size, int) else Dim(size or f"{argument.name}_{axis}", min=0)
        for axis, size in enumerate(argument.shape)
    )
    return TensorSpec(argument.name, _DTYPES.get(kind, kind), shape)
