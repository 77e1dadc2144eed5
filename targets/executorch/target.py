"""The ExecuTorch target: a `.pte` file for XNNPACK or portable kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import UsageError
from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..watching import Trail
    from .session import ExecuTorchSession

__all__ = ["ExecuTorchOptions", "ExecuTorchTarget"]

_REMEDY = 'pip install "isomorph[executorch]"'
_MODULES = ("executorch",)


@dataclass(frozen=True)
class ExecuTorchOptions:
    """Options of the ExecuTorch target.

    backend: what computes: `xnnpack` takes the operators that XNNPACK has and leaves the
        rest to portable kernels; `portable` leaves all to those.
    """

    backend: Literal["xnnpack", "portable"] = "xnnpack"

    def __post_init__(self) -> None:
        if self.backend not in ("xnnpack", "portable"):
            raise UsageError(
                f"backend={self.backend!r} is unknown", hint="choose xnnpack or portable"
            )


class ExecuTorchTarget:
    """Writes `NAME.pte` and opens it on ExecuTorch's Python runtime."""

    name = "executorch"
    suffix = ".pte"
    extra = "executorch"
    options_type = ExecuTorchOptions
    precisions: tuple[str, ...] = ("fp32",)

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}{self.suffix}",)

    def capability(self) -> Capability:
        """What is installed; imports none of it."""
        found = all(map(importable, _MODULES))
        return Capability(
            installed=found,
            version=installed_version("executorch") if found else None,
            builds=found,
            runs=found,
            devices=("cpu",) if found else (),
            remedy=None if found else _REMEDY,
            package="executorch",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators of `graph` that the installed runtime has no kernel for."""
        require("writing ExecuTorch programs", _MODULES, _REMEDY)
        from .prepare import find_unsupported

        return find_unsupported(graph)

    def convert(
        self, graph: Graph, options: ExecuTorchOptions, directory: Path, stem: str
    ) -> Artifact:
        """Write `directory/stem.pte`, and read back what is delegated in it.

        Raises:
            ConversionError: an operator has no kernel, or a dim has no upper bound.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: executorch is not installed.
        """
        require("writing ExecuTorch programs", _MODULES, _REMEDY)
        from .convert import to_executorch
        from .pte import read_pte
        from .session import describe, share_text

        program, notes = to_executorch(graph, options.backend)
        path = directory / f"{stem}{self.suffix}"
        with path.open("wb") as file:
            program.write_to_file(file)
        del program
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch", "executorch")),
            notes=(share_text(describe(read_pte(path))), *notes),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> ExecuTorchSession:
        """Load `artifact`. Files of ours carry their signature; others need `signature`."""
        require("running ExecuTorch programs", _MODULES, _REMEDY)
        if device.partition(":")[0].lower() != "cpu":
            raise UsageError(
                f"the ExecuTorch target does not know the device {device}", hint="choose cpu"
            )
        from .session import ExecuTorchSession

        return ExecuTorchSession(artifact, signature)

    def trail(
        self, graph: Graph, options: ExecuTorchOptions, artifact: Path, scratch: Path
    ) -> Trail:
        """Which value of `artifact` is which node of `graph`; see `Tracing`."""
        require("writing ExecuTorch programs", _MODULES, _REMEDY)
        from .trail import trail

        return trail(self, graph, options, artifact, scratch)
