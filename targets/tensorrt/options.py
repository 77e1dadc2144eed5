"""`--set` options of the two targets, and what they come to for the builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ...errors import UsageError

__all__ = ["RtxOptions", "Settings", "TensorRtOptions", "parse_opt"]

_LEVELS = range(6)
_MIB = 1 << 20
_MOST_MIB = 1 << 32  # in bytes that is what the call's 64 bits hold, and beyond any GPU


@dataclass(frozen=True)
class Settings:
    """What the builder is told, in the words of `IBuilderConfig`.

    workspace: limit of the WORKSPACE memory pool in bytes; None: all of the GPU's.
    optimization_level: `builder_optimization_level`; None: TensorRT's own (3).
    flags: names of `BuilderFlag` members to set; TF32 is cleared unless it is among them.
    hardware_compatibility: a name of `HardwareCompatibilityLevel`.
    compute_capabilities: names of `ComputeCapability` members (RTX only), such as "SM86".
    timing_cache: file that keeps kernel timings from one build to the next; None: none.
    """

    workspace: int | None = None
    optimization_level: int | None = None
    flags: tuple[str, ...] = ()
    hardware_compatibility: str = "NONE"
    compute_capabilities: tuple[str, ...] = ()
    timing_cache: str | None = None

    def to_json(self) -> dict[str, Any]:
        """What decides the engine; the timing cache's place does not."""
        return {
            "workspace": self.workspace,
            "optimization_level": self.optimization_level,
            "flags": list(self.flags),
            "hardware_compatibility": self.hardware_compatibility,
            "compute_capabilities": list(self.compute_capabilities),
        }


@dataclass(frozen=True)
class TensorRtOptions:
    """Options of the TensorRT target.

    opset: version of the ONNX operator set to build from, as for the ONNX target.
    opt: sizes to optimise for, `DIM:SIZE[,DIM:SIZE]`; none: those of the example input.
    workspace: MiB that a layer may use for scratch; none: all of the GPU's memory.
    optimization_level: 0 (fast build) to 5 (fast engine); none: TensorRT's own, 3.
    timing_cache: a file that keeps timings between builds; made if it is not there.
    tf32: let float32 products round their factors to 10 bits (TensorRT's own default).
    version_compatible: an engine that later versions of TensorRT load too.
    hardware_compatible: GPUs besides the one it is built on: ampere_plus, or all of the
        same compute capability.
    refit: weights can be replaced later.
    strip_plan: an engine without weights, to be refitted from the ONNX file.
    """

    opset: int | None = None
    opt: str | None = None
    workspace: int | None = None
    optimization_level: int | None = None
    timing_cache: str | None = None
    tf32: bool = False
    version_compatible: bool = False
    hardware_compatible: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
    refit: bool = False
    strip_plan: bool = False

    def __post_init__(self) -> None:
        _check_common(self.workspace, self.optimization_level, self.opt)

    @property
    def settings(self) -> Settings:
        """What the builder is told."""
        wishes = {
            "TF32": self.tf32,
            "VERSION_COMPATIBLE": self.version_compatible,
            "REFIT": self.refit,
            "STRIP_PLAN": self.strip_plan,
        }
        return Settings(
            workspace=None if self.workspace is None else self.workspace * _MIB,
            optimization_level=self.optimization_level,
            flags=tuple(flag for flag, wished in wishes.items() if wished),
            hardware_compatibility=self.hardware_compatible.upper(),
            timing_cache=self.timing_cache,
        )


@dataclass(frozen=True)
class RtxOptions:
    """Options of the TensorRT for RTX target.

    sm: compute capabilities of the GPUs to build for, without the dot, separated by commas.
    opset: version of the ONNX operator set to build from, as for the ONNX target.
    opt: sizes to optimise for, `DIM:SIZE[,DIM:SIZE]`; none: those of the example input.
    workspace: MiB that a layer may use for scratch; none: all of the GPU's memory.
    tf32: let float32 products round their factors to 10 bits (TensorRT's own default).
    """

    sm: str = "80,86,89,120"
    opset: int | None = None
    opt: str | None = None
    workspace: int | None = None
    tf32: bool = False

    def __post_init__(self) -> None:
        _check_common(self.workspace, None, self.opt)
        self.compute_capabilities()

    def compute_capabilities(self) -> tuple[str, ...]:
        """Names as in `ComputeCapability`.

        Raises:
            UsageError: `sm` is not a list of numbers.
        """
        names = [part.strip().upper().removeprefix("SM") for part in self.sm.split(",")]
        if not all(name.isdigit() for name in names):
            raise UsageError(
                f"sm={self.sm!r} is no list of compute capabilities", hint="such as sm=86,89,120"
            )
        return tuple(dict.fromkeys(f"SM{name}" for name in names))

    @property
    def settings(self) -> Settings:
        """What the builder is told."""
        return Settings(
            workspace=None if self.workspace is None else self.workspace * _MIB,
            flags=("TF32",) if self.tf32 else (),
            compute_capabilities=self.compute_capabilities(),
        )


def _check_common(workspace: int | None, level: int | None, opt: str | None) -> None:
    if workspace is not None and not 1 <= workspace <= _MOST_MIB:
        raise UsageError(f"workspace={workspace} is no size in MiB", hint="such as workspace=2048")
    if level is not None and level not in _LEVELS:
        raise UsageError(
            f"optimization_level={level} is out of range", hint=f"choose 0 to {_LEVELS.stop - 1}"
        )
    if opt is not None:
        parse_opt(opt)


def parse_opt(text: str) -> dict[str, int]:
    """Sizes by dim of `batch:8,height:224`.

    Raises:
        UsageError: it is not of that form.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, colon, size = part.strip().rpartition(":")
        if not colon or not name or not size.isdigit() or name in sizes:
            raise UsageError(f"opt={text!r} is not of the form DIM:SIZE[,DIM:SIZE]")
        sizes[name] = int(size)
    return sizes
