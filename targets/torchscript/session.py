"""A written TorchScript file, run by torch's own interpreter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, InputFileError, UsageError, first_line
from ...exporter.programs import load_torchscript
from ...exporter.signature import TensorSpec
from ..base import Evidence
from ..closing import Closing
from ..packages import require
from ..tensors import as_arrays, as_tensors, exact_float32, torch_device
from ..tf32 import tf32_allowed
from .archive import NAMES_FILE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TorchScriptSession"]


class TorchScriptSession(Closing):
    """A TorchScript file loaded by torch; close it, or use it in a `with`.

    The file's program is read before it is loaded (`exporter.vetting`): one that would
    touch files or call Python is refused. torch's fuser is off in every run, because its
    kernels are made after the first runs of each shape and round differently.

    Args:
        path: the `.ts` file.
        device: `cpu`, `cuda` or `cuda:N`.

    Raises:
        MissingRequirementError: the device is missing.
        InputFileError: the file is missing, corrupt, refused, or holds no names of inputs.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        self.path = path
        self._device = torch_device(device, "TorchScript")
        self.inputs, self.outputs = _border(path)
        module: Any = load_torchscript(path, trust=False)
        _demand_arity(path, module, len(self.inputs))
        self._module: Any = module.eval().to(self._device)
        self.evidence = Evidence(
            kind="executed",
            runtime="torch.jit",
            version=torch.__version__,
            device=str(self._device),
            details={
                "fusion": "off",
                **({"tf32": tf32_allowed()} if self._device.type == "cuda" else {}),
            },
        )

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype or shape does not fit the model's inputs.
            ConversionError: torch failed while it ran.
        """
        if self._module is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        tensors = as_tensors(inputs, self.inputs, self._device)
        try:
            with torch.inference_mode(), exact_float32(), _without_fusion():
                result = self._module(*tensors)
        except RuntimeError as error:
            raise ConversionError(
                f"torch failed while running {self.path.name}: {_last_line(error)}",
                hint="check that the sizes of the inputs are ones the model accepts",
            ) from error
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self.outputs):
            raise InputFileError(
                f"{self.path} returns {len(values)} tensors where it names {len(self.outputs)}",
                hint="the file was changed: export the model again",
            )
        return as_arrays(values, self.outputs)

    def close(self) -> None:
        """Release the model's memory."""
        self._module = None


def _border(path: Path) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs as the file itself names them."""
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name a .ts file")
    try:
        archive: Any = torch._C.PyTorchFileReader(str(path))
        records = archive.get_all_records()
        code = [archive.get_record(record).decode() for record in records if _is_code(record)]
    except (RuntimeError, UnicodeDecodeError) as error:
        raise InputFileError(
            f"{path} is not a TorchScript file that loads: {first_line(error)}",
            hint="the file may be truncated; export the model again",
        ) from error
    if f"extra/{NAMES_FILE}" not in records:
        raise InputFileError(
            f"{path} was not written by Isomorph: it does not name its inputs and outputs",
            hint="export the model with -f torchscript",
        )
    if any("ops.torchvision" in text for text in code):
        require("running this file", ("torchvision",), "pip install torchvision")
        import torchvision  # noqa: F401
    try:
        names = json.loads(archive.get_record(f"extra/{NAMES_FILE}"))
        inputs, outputs = (
            tuple(TensorSpec.from_json(entry) for entry in names[side])
            for side in ("inputs", "outputs")
        )
    except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        raise InputFileError(
            f"{path} names its inputs in a way that cannot be read: {first_line(error)}",
            hint="the file was changed, or a newer Isomorph wrote it: export the model again",
        ) from error
    return inputs, outputs


def _is_code(record: str) -> bool:
    return record.startswith("code/") and record.endswith(".py")


def _demand_arity(path: Path, module: Any, count: int) -> None:
    taken = len(module.forward.schema.arguments) - 1
    if taken != count:
        raise InputFileError(
            f"{path} takes {taken} inputs and names {count}",
            hint="the file was changed: export the model again",
        )


@contextmanager
def _without_fusion() -> Iterator[None]:
    """No fused kernels; the process's setting is restored."""
    before = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)


def _last_line(error: BaseException) -> str:
    """TorchScript puts its own stack before the operator's message."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
