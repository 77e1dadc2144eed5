"""A written AOTInductor package, loaded and run by torch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import (
    ConversionError,
    InputFileError,
    MissingRequirementError,
    UsageError,
    first_line,
)
from ...exporter.quiet import quiet_loggers
from ...exporter.signature import TensorSpec
from ..base import Evidence
from ..closing import Closing
from ..tensors import as_arrays, as_tensors, exact_float32, torch_device
from ..tf32 import tf32_allowed
from .compile import NAMES_KEY

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AotInductorSession"]

_FOLDER = "data/aotinductor/model/"
_SUFFIXES = (".so", ".json", ".blob")
_OTHERS = ("archive_format", "archive_version", "byteorder", ".data/version")
_AGAIN = "the file may be truncated or changed; export the model again"


class AotInductorSession(Closing):
    """A package loaded by torch, which runs native code in it; close it, or use it in a `with`.

    The package is read and its checksums are compared before any of it is loaded.

    Args:
        path: the `.aoti.pt2` file.
        device: `cpu`, `cuda` or `cuda:N`: the one that the package was compiled for.

    Raises:
        UsageError: the package is for another device.
        MissingRequirementError: the device is missing, or the package is for another platform.
        InputFileError: the file is missing, corrupt, or was not written by Isomorph.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        self.path = path
        self._device = torch_device(device, "AOTInductor")
        metadata = _vetted_metadata(path)
        self.inputs, self.outputs = _border(path, metadata)
        _demand_platform(path, metadata, self._device)
        self._model: Any = _load(path, self._device)
        self.evidence = Evidence(
            kind="executed",
            runtime="aotinductor",
            version=torch.__version__,
            device=str(self._device),
            details={
                "instructions": metadata.get("AOTI_CPU_ISA") or "unknown",
                **({"tf32": tf32_allowed()} if self._device.type == "cuda" else {}),
            },
        )

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype, shape or dynamic size does not fit the model's inputs.
            ConversionError: the package failed while it ran.
        """
        if self._model is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        tensors = as_tensors(inputs, self.inputs, self._device)
        try:
            with torch.inference_mode(), exact_float32():
                values = self._model(*tensors)
        except RuntimeError as error:
            raise ConversionError(
                f"the compiled model {self.path.name} failed: {first_line(error)}",
                hint="check that the sizes of the inputs are ones the model accepts",
            ) from error
        return as_arrays(values, self.outputs)

    def close(self) -> None:
        """Unload the package; torch removes the folder that it had unpacked it to."""
        self._model = None


def _vetted_metadata(path: Path) -> dict[str, str]:
    """The package's metadata, after members and checksums were found as they should be."""
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name a .aoti.pt2 file")
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise _refusal(path, f"its member {damaged} is damaged")
            found: dict[str, str] = {}
            names = [name.partition("/")[2] for name in archive.namelist()]
            if strange := [name for name in names if not _expected(name)]:
                raise _refusal(path, f"no such package holds {strange[0]}")
            if sum(name.endswith(".so") for name in names) != 1:
                raise _refusal(path, "it does not hold one compiled model")
            for name in archive.namelist():
                if name.endswith("wrapper_metadata.json"):
                    found = json.loads(archive.read(name))
    except InputFileError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise _refusal(path, first_line(error)) from error
    return found


def _expected(name: str) -> bool:
    if name.startswith(_FOLDER):
        return name.endswith(_SUFFIXES) and "/" not in name.removeprefix(_FOLDER)
    return name in _OTHERS or name == ".data/serialization_id"


def _refusal(path: Path, why: str) -> InputFileError:
    return InputFileError(f"{path} is not an AOTInductor package that loads: {why}", hint=_AGAIN)


def _border(
    path: Path, metadata: Mapping[str, str]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    if NAMES_KEY not in metadata:
        raise InputFileError(
            f"{path} was not written by Isomorph: it does not name its inputs and outputs",
            hint="export the model with -f aotinductor",
        )
    try:
        names = json.loads(metadata[NAMES_KEY])
        inputs, outputs = (
            tuple(TensorSpec.from_json(entry) for entry in names[side])
            for side in ("inputs", "outputs")
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _refusal(path, f"its names cannot be read: {first_line(error)}") from error
    return inputs, outputs


def _demand_platform(path: Path, metadata: Mapping[str, str], device: torch.device) -> None:
    """Native code runs where it was made for, and nowhere else.

    Raises:
        UsageError: it is for the other device.
        MissingRequirementError: it is for another system or processor.
    """
    import platform

    made_for = metadata.get("AOTI_DEVICE_KEY", "cpu")
    if made_for != device.type:
        raise UsageError(
            f"{path.name} is compiled for {made_for}, not for {device.type}",
            hint=f"export it with --set aotinductor.device={device.type}",
        )
    here = (platform.system().lower(), platform.machine())
    there = (metadata.get("AOTI_PLATFORM", here[0]), metadata.get("AOTI_MACHINE", here[1]))
    if here != there:
        raise MissingRequirementError(
            f"{path.name} is compiled for {' '.join(there)}, and this is {' '.join(here)}",
            hint="export the model on such a machine",
        )


def _load(path: Path, device: torch.device) -> Any:
    with quiet_loggers("torch", level=50):
        import torch._inductor

        try:
            return torch._inductor.aoti_load_package(
                str(path), device_index=-1 if device.index is None else device.index
            )
        except Exception as error:
            raise _refusal(path, first_line(error)) from error
