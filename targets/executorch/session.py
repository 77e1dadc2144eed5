"""A written `.pte` file on ExecuTorch's Python runtime, which computes on the CPU."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, InputFileError, UsageError
from ...exporter.signature import Dim, TensorSpec
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed
from ..packages import installed_version
from .flatbuffer import MalformedError
from .native_log import native_log
from .pte import METHOD, BorderTensor, PteFile, read_pte

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..watching import Value
    from .watching import WatchedProgram

__all__ = ["ExecuTorchSession", "describe", "share_text"]

# Error codes of runtime/core/error.h.
_CODES = {
    0x01: "internal error",
    0x02: "invalid state",
    0x10: "not supported in this context",
    0x11: "not implemented",
    0x12: "invalid argument",
    0x13: "invalid type",
    0x14: "operator missing",
    0x20: "not found",
    0x21: "out of memory",
    0x22: "data could not be accessed",
    0x23: "invalid program",
    0x24: "invalid external data",
    0x25: "out of resources",
    0x30: "the delegate does not take this data",
    0x31: "the delegate is out of memory",
    0x32: "invalid delegate handle",
}
_BEYOND_RUNTIME = (0x10, 0x11, 0x14)


class ExecuTorchSession(Closing):
    """A `.pte` file loaded on the runtime; close it, or use it in a `with`.

    Args:
        path: the file.
        signature: names and dims; None: as the file itself says, if Isomorph wrote it,
            else `input_0`, `output_0` and so on.

    Raises:
        InputFileError: the file is missing, corrupt, or does not fit `signature`.
        ConversionError: the file is sound, but this runtime cannot run it.
    """

    def __init__(self, path: Path, signature: Signature | None = None) -> None:
        self.path = path
        file = _read(path)
        found = _signature(path, file, signature)
        self.inputs, self.outputs = found.inputs, found.outputs
        self._program, self._method = _load(path)
        self.evidence = _evidence(file)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name; bfloat16 goes in and comes out as float32.

        Raises:
            UsageError: a name, dtype or shape does not fit the model's inputs.
            ConversionError: the runtime failed while it ran.
        """
        if self._method is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        tensors = self._fed(inputs)
        try:
            with native_log() as log:
                values = self._method.execute(tensors)
        except Exception as error:
            raise ConversionError(
                f"ExecuTorch failed while running {self.path.name}: {_meaning(error, log.reasons)}",
                hint="check that the sizes of the inputs are ones the model was exported for; "
                "if they are, an operator or dtype of the model is beyond this runtime",
            ) from error
        return {spec.name: _array(value) for spec, value in zip(self.outputs, values, strict=True)}

    def _fed(self, inputs: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Tensors in the method's order: copies, because the runtime may write to what it gets."""
        import torch

        feed = checked_feed(inputs, tuple(map(_as_numpy_has_it, self.inputs)))
        return [
            torch.from_numpy(feed[spec.name].copy()).to(getattr(torch, spec.dtype))
            for spec in self.inputs
        ]

    def values(self) -> tuple[Value, ...]:
        """What kernels and delegated parts give; see `Watching`."""
        return self._inside.values()

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The outputs, and the values of `names` as the runtime logs them; see `Watching`."""
        outputs, found = self._inside.run(self._fed(inputs), names)
        own = zip(self.outputs, outputs, strict=True)
        return {**{spec.name: _array(value) for spec, value in own}, **found}

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The runtime runs whole methods only."""
        raise NotImplementedError

    @cached_property
    def _inside(self) -> WatchedProgram:
        from .watching import WatchedProgram

        return WatchedProgram(self.path, [spec.name for spec in self.inputs])

    def close(self) -> None:
        """Release the model's memory."""
        self._method = self._program = None


def _as_numpy_has_it(spec: TensorSpec) -> TensorSpec:
    return replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec


def _read(path: Path) -> PteFile:
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name a .pte file")
    if path.stat().st_size == 0:
        raise InputFileError(f"{path} is empty", hint="export the model again")
    try:
        return read_pte(path)
    except MalformedError as error:
        raise InputFileError(
            f"{path} is not an ExecuTorch program that loads: {error}",
            hint="the file may be truncated or of another kind; export the model again",
        ) from error
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error


def _load(path: Path) -> tuple[Any, Any]:
    """Program (which must outlive the method) and method."""
    from executorch.runtime import Runtime, Verification

    try:
        with native_log() as log:
            program = Runtime.get().load_program(
                path, verification=Verification.InternalConsistency
            )
            return program, program.load_method(METHOD)
    except Exception as error:
        meaning = _meaning(error, log.reasons)
        if _code(error) in _BEYOND_RUNTIME:
            raise ConversionError(
                f"this ExecuTorch runtime cannot run {path.name}: {meaning}",
                hint="it may lack a kernel or a backend that the file asks for",
            ) from error
        raise InputFileError(
            f"{path} is not an ExecuTorch program that loads: {meaning}",
            hint="the file may be truncated or damaged; export the model again",
        ) from error


def _code(error: Exception) -> int | None:
    found = re.search(r"error:? (?:code )?0x([0-9a-fA-F]+)", str(error))
    return int(found[1], 16) if found else None


def _meaning(error: Exception, reasons: str) -> str:
    code = _code(error)
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if code is not None:
        text = f"{_CODES.get(code, 'unknown error')} (error {code:#x})"
    return f"{text}: {reasons}" if reasons else text


def _array(value: Any) -> NDArray[Any]:
    import torch

    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    array: NDArray[Any] = tensor.contiguous().numpy()
    return array


def _signature(path: Path, file: PteFile, given: Signature | None) -> Signature:
    """The names and dims to go by, after they were compared with the file's border."""
    own = _embedded(path, file)
    if given is None and own is None:
        return Signature(_numbered("input", file.inputs), _numbered("output", file.outputs))
    for signature in filter(None, (own, given)):
        _compare(path, "input", file.inputs, signature.inputs)
        _compare(path, "output", file.outputs, signature.outputs)
    if given is not None and own is not None:
        for kind, ours, theirs in (
            ("inputs", own.inputs, given.inputs),
            ("outputs", own.outputs, given.outputs),
        ):
            names = [spec.name for spec in ours], [spec.name for spec in theirs]
            if names[0] != names[1]:
                raise _other_model(
                    path, f"its {kind} are {', '.join(names[0])}, not {', '.join(names[1])}"
                )
    found = given or own
    assert found is not None
    return found


def _embedded(path: Path, file: PteFile) -> Signature | None:
    if file.signature is None:
        return None
    try:
        document = json.loads(file.signature)
        inputs, outputs = (
            tuple(TensorSpec.from_json(spec) for spec in document[kind])
            for kind in ("inputs", "outputs")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"the names that {path} holds of its inputs and outputs cannot be read",
            hint="the file may be damaged; export the model again",
        ) from error
    return Signature(inputs, outputs)


def _compare(
    path: Path, kind: str, found: tuple[BorderTensor, ...], wanted: tuple[TensorSpec, ...]
) -> None:
    if len(found) != len(wanted):
        raise _other_model(path, f"it has {len(found)} {kind}s, not {len(wanted)}")
    for tensor, spec in zip(found, wanted, strict=True):
        if tensor.dtype != spec.dtype:
            raise _other_model(path, f"its {kind} {spec.name} is {tensor.dtype}, not {spec.dtype}")
        if not _fits(tensor.sizes, spec.shape):
            sizes = "x".join(map(str, tensor.sizes)) or "scalar"
            raise _other_model(
                path, f"its {kind} {spec.name} has room for {sizes}, not {_shape_text(spec)}"
            )


def _fits(sizes: tuple[int, ...], shape: tuple[int | Dim, ...]) -> bool:
    """Whether `sizes`, the largest that the file takes, are those of `shape`."""
    return len(sizes) == len(shape) and all(
        size == wanted if isinstance(wanted, int) else wanted.max is None or size >= wanted.max
        for size, wanted in zip(sizes, shape, strict=True)
    )


def _shape_text(spec: TensorSpec) -> str:
    return "x".join(
        f"{size.name}(up to {size.max})" if isinstance(size, Dim) else str(size)
        for size in spec.shape
    )


def _other_model(path: Path, difference: str) -> InputFileError:
    return InputFileError(
        f"{path} is another model than the signature describes: {difference}",
        hint="the file was replaced, or belongs to another manifest; export the model again",
    )


def _numbered(kind: str, tensors: tuple[BorderTensor, ...]) -> tuple[TensorSpec, ...]:
    """Names for a file that has none; sizes of dynamic tensors are bounds, so any may vary."""
    return tuple(
        TensorSpec(
            f"{kind}_{index}",
            tensor.dtype,
            tuple(
                Dim(f"{kind}_{index}_{axis}", 0, size) if tensor.dynamic else size
                for axis, size in enumerate(tensor.sizes)
            ),
        )
        for index, tensor in enumerate(tensors)
    )


def _evidence(file: PteFile) -> Evidence:
    return Evidence(
        kind="executed",
        runtime="executorch",
        version=installed_version("executorch") or "unknown",
        device="cpu",
        details=describe(file),
    )


def describe(file: PteFile) -> dict[str, Any]:
    """What the file gives to backends and what it leaves to portable kernels."""
    total = None if file.delegated is None else file.delegated + len(file.kernels)
    return {
        "backend": ", ".join(sorted(set(file.delegates))) or "portable",
        "delegated_operators": "unknown" if file.delegated is None else file.delegated,
        "portable_operators": len(file.kernels),
        "delegated_share": "unknown" if not total else round((file.delegated or 0) / total, 3),
        "portable_kernels": dict(sorted(Counter(file.kernels).items())),
        **({"delegate_dtypes": list(file.delegate_dtypes)} if file.delegates else {}),
    }


def share_text(details: Mapping[str, Any]) -> str:
    """The delegated share in a sentence."""
    kernels = ", ".join(details["portable_kernels"])
    by_kernels = f"{details['portable_operators']} by portable kernels"
    return (
        f"{details['delegated_operators']} operators are computed by {details['backend']}, "
        f"{by_kernels}" + (f" ({kernels})" if kernels else "")
        if details["backend"] != "portable"
        else f"all {by_kernels}"
    )
