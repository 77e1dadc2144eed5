"""Apple's own runtime, which exists on macOS alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, MissingRequirementError, UsageError, first_line
from ..base import Evidence
from ..packages import importable, installed_version
from .quiet import coremltools, hushed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DEVICES", "REMEDY", "AppleRunner", "has_runtime", "require_device"]

DEVICES = {"cpu": "CPU_ONLY", "gpu": "CPU_AND_GPU", "ne": "CPU_AND_NE", "all": "ALL"}
"""coremltools' compute units for each device."""

REMEDY = "run this on a Mac: isomorph validate PACKAGE --against CHECKPOINT --device {device}"


def has_runtime() -> bool:
    """Whether Apple's runtime can be called here; imports nothing."""
    return sys.platform == "darwin" and importable("coremltools.libcoremlpython")


def require_device(device: str) -> bool:
    """Whether Apple's runtime takes `device`; False where the evaluator computes it.

    Raises:
        UsageError: no such device.
        MissingRequirementError: it is there on a Mac alone.
    """
    if device not in DEVICES:
        raise UsageError(
            f"the Core ML target does not know the device {device}",
            hint=f"choose {', '.join(DEVICES)}",
        )
    if has_runtime():
        return True
    if device != "cpu":
        raise MissingRequirementError(
            f"Core ML's {device} device exists on macOS, and this is {sys.platform}",
            hint=REMEDY.format(device=device),
        )
    return False


class AppleRunner:
    """A package loaded by Apple's runtime on chosen compute units.

    Raises:
        ConversionError: the runtime does not load the package.
    """

    readings: tuple[str, ...] = ()

    def __init__(self, path: Path, device: str, function: str = "main") -> None:
        self._path = path
        units = DEVICES[device]
        ct = coremltools()
        try:
            with hushed():
                self._model: Any = ct.models.MLModel(
                    str(path),
                    compute_units=ct.ComputeUnit[units],
                    **({} if function == "main" else {"function_name": function}),
                )
        except Exception as error:
            raise ConversionError(
                f"Core ML does not load {path.name} on {device}: {first_line(error)}",
                hint="another deployment target may help: --set coreml.deployment_target=iOS18",
            ) from error
        self.evidence = Evidence(
            kind="executed",
            runtime="Core ML",
            version=_system(),
            device=device,
            details={
                "compute_units": units,
                "coremltools": installed_version("coremltools") or "unknown",
                # Which unit ran which operator Core ML tells in MLComputePlan alone.
                "layers": "unknown",
            },
        )

    def __call__(
        self, arrays: Mapping[str, NDArray[Any]], reading: str = ""
    ) -> Mapping[str, NDArray[Any]]:
        """Outputs by feature name.

        Raises:
            ConversionError: Core ML failed while it ran.
        """
        try:
            with hushed():
                state = self._model.make_state() if self._has_states() else None
                found = self._model.predict(dict(arrays), **({"state": state} if state else {}))
        except Exception as error:
            raise ConversionError(
                f"Core ML failed while running {self._path.name}: {first_line(error)}",
                hint="check that the sizes of the inputs are ones the model accepts",
            ) from error
        return dict(found)

    def _has_states(self) -> bool:
        description = self._model.get_spec().description
        return bool(description.state) or any(f.state for f in description.functions)


def _system() -> str:
    import platform

    return f"macOS {platform.mac_ver()[0] or 'unknown'}"
