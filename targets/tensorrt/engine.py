"""A written engine, run on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import (
    ConversionError,
    InputFileError,
    IsomorphError,
    MissingRequirementError,
    UsageError,
)
from ...exporter.signature import Dim, TensorSpec
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed
from .failures import own_errors, plain_reason, says_out_of_memory
from .logger import collected_errors, logger_of
from .products import RTX, TENSORRT, Product
from .trusted import is_own

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .border import EngineInput, EngineTensor
    from .running import EngineRunner

__all__ = ["EngineSession"]

_REBUILD = "export again on the machine whose GPU is to run it, with its TensorRT"
_SMALLER = "close other programs on the GPU, or export with a lower largest size of a dynamic dim"


class EngineSession(Closing):
    """An engine of `product`, deserialised on the first GPU.

    A stripped engine gets its weights from the network beside it, `NAME.engine.onnx`.

    Args:
        product: which runtime.
        path: the engine.
        signature: the model's border; None: what the engine declares.
        library: CUDA's driver; None: where the system keeps it.

    Raises:
        InputFileError: the file is no engine, damaged, stripped, or not of `signature`.
        MissingRequirementError: another version, GPU or driver is needed.
        ConversionError: the GPU's memory is too small, or the engine cannot be made ready.
    """

    def __init__(
        self,
        product: Product,
        path: Path,
        signature: Signature | None,
        *,
        library: str | None = None,
    ) -> None:
        from .running import EngineRunner

        self.path = path
        self._product = product
        self._runner: EngineRunner | None = None
        data = _read(product, path)
        onnx = path.with_name(f"{path.name}.onnx")
        module = product.load()
        with self._told("loading"):
            self._runner = EngineRunner(
                module,
                data,
                logger_of(module),
                onnx=onnx if onnx.is_file() else None,
                host_code=is_own(data),
                library=library,
            )
        try:
            self.inputs, self.outputs = self._border(signature)
            with self._told("reading"):
                facts = self._runner.facts()
        except BaseException:
            self.close()
            raise
        self.evidence = Evidence(
            kind="executed",
            runtime=product.name,
            version=facts.pop("tensorrt"),
            device="cuda",
            details=facts,
        )

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype or shape does not fit the model or the engine's profile.
            ConversionError: the GPU's memory is too small, or the run failed.
        """
        if self._runner is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        feed = checked_feed(inputs, self.inputs)
        with self._told("running"):
            found = self._runner.run(feed)
        return {spec.name: found[spec.name] for spec in self.outputs}

    def close(self) -> None:
        """Release the engine and its memory."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _border(
        self, signature: Signature | None
    ) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """The signature, after the engine's border was compared with it; or the engine's own."""
        assert self._runner is not None
        inputs = tuple(map(_input_spec, self._runner.inputs))
        outputs = tuple(map(_output_spec, self._runner.outputs))
        if signature is None:
            return inputs, outputs
        for kind, ours, theirs in (
            ("inputs", signature.inputs, inputs),
            ("outputs", signature.outputs, outputs),
        ):
            declared = {spec.name: spec.dtype for spec in theirs}
            if declared != {spec.name: spec.dtype for spec in ours}:
                raise InputFileError(
                    f"{self.path.name} is not the engine that its manifest tells of: its {kind} "
                    f"are {_listed(theirs)}, and the manifest has {_listed(ours)}",
                    hint="export again",
                )
        return signature.inputs, signature.outputs

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """What goes wrong inside as one of our errors, with what TensorRT said."""
        from .driver import CudaError
        from .running import EngineError, UnfitInputError

        with collected_errors() as errors:
            try:
                yield
            except UnfitInputError as error:
                raise UsageError(
                    f"{self.path.name}: {error}", hint="export again with a wider --dynamic range"
                ) from error
            except (EngineError, CudaError) as error:
                raise _failure(self._product, self.path, doing, error, errors) from error
            except OSError as error:
                raise MissingRequirementError(
                    f"CUDA's driver does not load: {error}", hint="install the NVIDIA driver"
                ) from error


def _read(product: Product, path: Path) -> bytes:
    """The engine's bytes.

    Raises:
        InputFileError: they cannot be those of an engine of `product`.
    """
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name an .engine file")
    data = path.read_bytes()
    if not data:
        raise InputFileError(f"{path} is empty", hint="export again")
    other = next((one for one in (TENSORRT, RTX) if data.startswith(one.magic)), product)
    if other != product:
        raise InputFileError(
            f"{path.name} is an engine of {other.title}, which {product.title} cannot load",
            hint=f"validate it as {other.name}",
        )
    return data


def _failure(
    product: Product, path: Path, doing: str, error: Exception, errors: Sequence[str]
) -> IsomorphError:
    """The error for an engine that was not loaded or did not run."""
    from .driver import CudaError
    from .running import EngineRefusedError, StrippedEngineError

    reasons = filter(None, map(plain_reason, own_errors(errors)))
    reason = "; ".join(dict.fromkeys(reasons)) or str(error)
    if _out_of_memory(error, errors):
        return ConversionError(
            f"out of GPU memory while {doing} {path.name}: {reason}", hint=_SMALLER
        )
    if isinstance(error, StrippedEngineError):
        return InputFileError(
            f"{path.name} cannot run: {error}",
            hint=f"put the ONNX file that it was built from beside it as {path.name}.onnx, or "
            "export again without strip_plan",
        )
    if isinstance(error, EngineRefusedError):
        return _refusal(product, path, error.diagnostics, errors, reason)
    if isinstance(error, CudaError) and doing == "loading":
        return MissingRequirementError(
            f"CUDA fails while {doing} {path.name}: {error}",
            hint="check the NVIDIA driver with nvidia-smi",
        )
    told = str(error) if reason in str(error) else f"{error}: {reason}"
    return ConversionError(
        f"{product.title} failed while {doing} {path.name}: {told}",
        hint=f"{_REBUILD}; -v shows all that it says",
    )


def _out_of_memory(error: Exception, errors: Sequence[str]) -> bool:
    from .driver import CudaError
    from .running import EngineRefusedError

    return (
        (isinstance(error, CudaError) and error.out_of_memory)
        or (
            isinstance(error, EngineRefusedError) and "INSUFFICIENT_GPU_MEMORY" in error.diagnostics
        )
        or any(map(says_out_of_memory, errors))
    )


def _refusal(
    product: Product, path: Path, diagnostics: Sequence[str], errors: Sequence[str], reason: str
) -> IsomorphError:
    """The error for bytes that the runtime does not take."""
    text = " ".join(errors)
    found = set(diagnostics)
    runtime = f"{product.title} {product.version() or ''}".strip()
    if _says(text, "HostCodeAllowed"):
        return InputFileError(
            f"{path.name} carries native code, a runtime for several versions, which is loaded "
            "only by the process that built it",
            hint="it is checked when it is exported; or export without version_compatible",
        )
    if found & {"VERSION_MISMATCH"} or _says(text, "library version", "Version tag"):
        return MissingRequirementError(
            f"{path.name} was built by another version than {runtime}: {reason}",
            hint=f"install the version that built it, or {_REBUILD}",
        )
    if found & {"UNSUPPORTED_CC"} or _says(text, "incompatible device", "compute capability"):
        where = "name it in --set sm=..." if product is RTX else "build it there"
        return MissingRequirementError(
            f"{path.name} was built for another GPU: {reason}", hint=f"{_REBUILD} ({where})"
        )
    if found & {"OLD_CUDA_DRIVER", "OLD_CUDA_RUNTIME", "CUDA_ERROR"}:
        return MissingRequirementError(
            f"{path.name} does not load with this NVIDIA driver: {reason}",
            hint="update the NVIDIA driver",
        )
    if found & {"MALFORMED_ENGINE"} or _says(
        text, "agic tag", "agicTag", "Serialization", "empty memory buffer"
    ):
        return InputFileError(
            f"{path.name} is no {product.title} engine, or a damaged one: {reason}",
            hint="export again",
        )
    return MissingRequirementError(f"{runtime} does not load {path.name}: {reason}", hint=_REBUILD)


def _says(text: str, *signs: str) -> bool:
    return any(sign in text for sign in signs)


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name}:{spec.dtype}" for spec in specs) or "none"


def _input_spec(tensor: EngineInput) -> TensorSpec:
    shape = tuple(
        Dim(f"{tensor.name}_{axis}", min=low, max=high) if size < 0 else size
        for axis, (size, low, high) in enumerate(
            zip(tensor.shape, tensor.min, tensor.max, strict=True)
        )
    )
    return TensorSpec(tensor.name, tensor.dtype, shape)


def _output_spec(tensor: EngineTensor) -> TensorSpec:
    shape = tuple(
        Dim(f"{tensor.name}_{axis}", min=0) if size < 0 else size
        for axis, size in enumerate(tensor.shape)
    )
    return TensorSpec(tensor.name, tensor.dtype, shape)
