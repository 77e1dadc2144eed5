"""A written OpenVINO IR on OpenVINO's runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ...errors import (
    ConversionError,
    InputFileError,
    IsomorphError,
    MissingRequirementError,
    UsageError,
)
from ...exporter.signature import Dim, TensorSpec
from ..base import Evidence, Signature
from ..bfloat16 import from_bits, to_bits
from ..closing import Closing
from ..feed import checked_feed
from ..int32 import require_int32
from .border import OPENVINO_TYPES
from .watching import WatchedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..watching import Value

__all__ = ["OpenVinoSession"]

_DTYPES = {name: dtype for dtype, name in OPENVINO_TYPES.items()}
_HALF = {"f16", "bf16"}


class OpenVinoSession(Closing):
    """An `.xml` and its `.bin` compiled for a device; close it, or use it in a `with`.

    Args:
        path: the `.xml` file; the `.bin` is looked for beside it.
        device: `cpu`, `gpu`, `npu`, or a numbered one such as `gpu.1`.
        signature: names of dims, which the file does not hold.
        watched: whether `run` asks for every value inside, which keeps OpenVINO from fusing.

    Raises:
        MissingRequirementError: OpenVINO does not list the device.
        InputFileError: a file is missing, corrupt, or not what `signature` says.
        ConversionError: the files are sound, but the device cannot run them.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        signature: Signature | None = None,
        *,
        watched: bool = False,
    ) -> None:
        self.path = path
        model = _read(path)
        self._device = _known_device(device)
        self._model: Any = model
        self._watched = watched
        self._compiled: Any = _compile(path, model, self._device)
        self.inputs = tuple(_spec(port) for port in model.inputs)
        self.outputs = tuple(_spec(port) for port in model.outputs)
        if signature is not None:
            self.inputs = _named(path, "input", self.inputs, signature.inputs)
            self.outputs = _named(path, "output", self.outputs, signature.outputs)
        self.evidence = self._evidence(device, _float_types(model))

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype or shape does not fit, or an int64 is beyond int32, in
                which OpenVINO's CPU plug-in computes.
            ConversionError: OpenVINO failed while it ran.
        """
        if self._compiled is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        found = self._run(inputs, self._every() if self._watched else ())
        return {spec.name: found[spec.name] for spec in self.outputs}

    def values(self) -> tuple[Value, ...]:
        """What can be watched; see `Watching`."""
        return self._inside().values()

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """Outputs, and the values of `names`; see `Watching`."""
        return self._run(inputs, self._every() if self._watched else tuple(names), names)

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone; see `Watching`."""
        return self._inside().replay(given, names)

    def _every(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.values())

    def _inside(self) -> WatchedModel:
        if self._model is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        return WatchedModel(self._model, lambda model: _compile(self.path, model, self._device))

    def _run(
        self,
        inputs: Mapping[str, NDArray[Any]],
        watched: Sequence[str],
        names: Sequence[str] = (),
    ) -> dict[str, NDArray[Any]]:
        """The outputs and the values of `names`, which are among those of `watched`."""
        feed = checked_feed(inputs, self.inputs)
        require_int32(feed, "OpenVINO")
        try:
            # Shared memory (the default) may be written to, or returned as an output.
            given = [_tensor(s, array) for s, array in zip(self.inputs, feed.values(), strict=True)]
            if not watched:
                found = self._compiled(given, share_inputs=False)
                return {s.name: _array(s, found[i]) for i, s in enumerate(self.outputs)}
            values = self._inside().run(given, watched)
        except IsomorphError:
            raise
        except Exception as error:
            raise ConversionError(
                f"OpenVINO failed while running {self.path.name}: {_telling(error)}",
                hint="check that the sizes of the inputs are ones the model accepts",
            ) from error
        outputs = {s.name: values[i] for i, s in enumerate(self.outputs)}
        seen = dict(zip(watched, values[len(self.outputs) :], strict=True))
        return {**{name: seen[name] for name in names}, **outputs}

    def close(self) -> None:
        """Release the model's memory."""
        self._compiled = self._model = None

    def _evidence(self, device: str, stored: set[str]) -> Evidence:
        import openvino

        layers = _layer_precisions(self._compiled)
        details: dict[str, Any] = {
            "execution_devices": list(self._compiled.get_property("EXECUTION_DEVICES")),
            "inference_precision": "f32",
            "layers": layers,
        }
        lower = sorted(_HALF & set(layers))
        if lower and not stored & _HALF:
            told = ", ".join(f"{layers[kind]} in {kind}" for kind in lower)
            raise MissingRequirementError(
                f"OpenVINO was asked for f32 on {device} and runs layers lower: {told}",
                hint="this device does not compute in float32; check on another, or export with "
                "--precision fp16",
            )
        if stored & _HALF:
            details["half_operators"] = (
                f"computed in {', '.join(lower)}"
                if lower
                else ("computed in f32: half weights are widened when the model is compiled")
            )
        return Evidence(
            kind="executed",
            runtime="openvino",
            version=openvino.__version__.partition("-")[0],
            device=device,
            details=details,
        )


def _tensor(spec: TensorSpec, array: NDArray[Any]) -> Any:
    """What OpenVINO takes; bfloat16, which numpy lacks, as a tensor of its bits."""
    import openvino

    if spec.dtype != "bfloat16":
        return array
    tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(array.shape))
    tensor.data.view("uint16")[...] = to_bits(array)
    return tensor


def _array(spec: TensorSpec, found: NDArray[Any]) -> NDArray[Any]:
    """A copy; bfloat16, whose bits OpenVINO's Python API calls float16, as float32."""
    return from_bits(found.view("uint16")) if spec.dtype == "bfloat16" else found.copy()


def _read(path: Path) -> Any:
    import openvino

    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name an .xml file that OpenVINO wrote")
    if path.stat().st_size == 0:
        raise InputFileError(f"{path} is empty", hint="export the model again")
    _require_weights(path)
    try:
        return openvino.Core().read_model(str(path))
    except Exception as error:
        raise InputFileError(
            f"{path} is not an OpenVINO model that loads: {_telling(error)}",
            hint="the .xml or its .bin may be damaged; export the model again",
        ) from error


def _require_weights(path: Path) -> None:
    """Compare the .bin with what the .xml's constants take: OpenVINO reads a longer one as it is.

    Raises:
        InputFileError: the .xml is no IR, or the .bin is missing or of another size.
    """
    remedy = "copy both files of one export, or export the model again"
    try:
        net = ElementTree.parse(path).getroot()
        places = [
            int(data.get("offset", "0")) + int(data.get("size", "0"))
            for layer in net.iter("layer")
            if layer.get("type") == "Const" and (data := layer.find("data")) is not None
        ]
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an unknown encoding
        raise InputFileError(f"{path} is not OpenVINO IR: {error}", hint=remedy) from error
    if net.tag != "net":
        raise InputFileError(f"{path} is XML, but not OpenVINO IR", hint=remedy)
    weights, needed = path.with_suffix(".bin"), max(places, default=0)
    if not weights.is_file():
        if needed == 0:
            return
        raise InputFileError(f"{weights}, the weights of {path.name}, does not exist", hint=remedy)
    if weights.stat().st_size != needed:
        raise InputFileError(
            f"{weights} has {weights.stat().st_size} bytes where {path.name} takes {needed}: it "
            "is truncated or belongs to another model",
            hint=remedy,
        )


def _known_device(device: str) -> str:
    import openvino

    name = device.upper()
    available = openvino.Core().available_devices
    kind = name.partition(".")[0]
    if kind not in ("CPU", "GPU", "NPU"):
        raise UsageError(
            f"the OpenVINO target does not know the device {device}",
            hint="choose cpu, gpu or npu",
        )
    if not any(name in (found, found.partition(".")[0]) for found in available):
        raise MissingRequirementError(
            f"OpenVINO lists no {name} on this machine; it lists {', '.join(available)}",
            hint="install the device's driver: see OpenVINO's installation guide",
        )
    return name


def _compile(path: Path, model: Any, device: str) -> Any:
    import openvino

    try:
        return openvino.Core().compile_model(model, device, {"INFERENCE_PRECISION_HINT": "f32"})
    except Exception as error:
        raise ConversionError(
            f"OpenVINO cannot run {path.name} on {device}: {_telling(error)}",
            hint="the device lacks an operator or dtype of the model; try another device",
        ) from error


def _layer_precisions(compiled: Any) -> dict[str, int]:
    """How many layers the device runs in each precision, as its compiled model tells."""
    precisions: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ops():
        info = node.get_rt_info()
        if _text(info, "layerType") not in ("Const", "Input", "Output"):
            precisions[_text(info, "runtimePrecision")] += 1
    return dict(sorted(precisions.items()))


def _text(info: Any, key: str) -> str:
    return str(info[key].astype(str)) if key in info else "unknown"


def _float_types(model: Any) -> set[str]:
    return {
        output.get_element_type().get_type_name()
        for node in model.get_ops()
        for output in node.outputs()
        if output.get_element_type().is_real()
    }


def _spec(port: Any) -> TensorSpec:
    name = port.get_any_name() if port.get_names() else port.get_node().get_friendly_name()
    kind = port.get_element_type().get_type_name()
    shape: list[int | Dim] = []
    for axis, size in enumerate(port.get_partial_shape()):
        if size.is_static:
            shape.append(size.get_length())
        else:
            top = size.get_max_length()
            shape.append(Dim(f"{name}_{axis}", size.get_min_length(), None if top < 0 else top))
    return TensorSpec(name, _DTYPES.get(kind, kind), tuple(shape))


def _named(
    path: Path, kind: str, found: tuple[TensorSpec, ...], wanted: tuple[TensorSpec, ...]
) -> tuple[TensorSpec, ...]:
    """The signature's specs under the file's names, if the two agree."""
    from dataclasses import replace

    if len(found) != len(wanted):
        raise InputFileError(
            f"{path.name} has {len(found)} {kind}s where its manifest tells {len(wanted)}",
            hint="export the model again",
        )
    for ours, theirs in zip(found, wanted, strict=True):
        if ours.dtype != theirs.dtype or len(ours.shape) != len(theirs.shape):
            raise InputFileError(
                f"{kind} {ours.name} of {path.name} is {ours.dtype} with {len(ours.shape)} axes "
                f"where its manifest tells {theirs.dtype} with {len(theirs.shape)}",
                hint="export the model again",
            )
    return tuple(replace(t, name=o.name) for o, t in zip(found, wanted, strict=True))


def _telling(error: Exception) -> str:
    """The line of OpenVINO's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if not line.startswith(("Exception from", "Check '", "[ NETWORK"))
    ]
    return (telling or lines or [type(error).__name__])[-1]
