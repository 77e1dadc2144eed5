"""The Core ML format: converted by coremltools, evaluated here, run by Apple's runtime on macOS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require
from .apple import DEVICES, REMEDY, has_runtime
from .options import CoreMlOptions

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..watching import Trail
    from .session import CoreMlSession

__all__ = ["CoreMlOptions", "CoreMlTarget"]

_REMEDY = 'pip install "isomorph[coreml]"'


class CoreMlTarget:
    """Writes `NAME.mlpackage` and evaluates it; on macOS runs it on Core ML."""

    name = "coreml"
    suffix = ".mlpackage"
    extra = "coreml"
    options_type = CoreMlOptions
    precisions = ("fp32", "fp16")

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.mlpackage",)

    def capability(self) -> Capability:
        """What is installed; imports none of it.

        Off macOS the device "cpu" means that packages are evaluated here.
        """
        present = importable("coremltools")
        apple = present and has_runtime()
        return Capability(
            installed=present,
            version=installed_version("coremltools") if present else None,
            builds=present,
            runs=present,
            devices=() if not present else tuple(DEVICES) if apple else ("cpu",),
            remedy=None if present else _REMEDY,
            package="coremltools",
            device_remedies={}
            if apple
            else {name: REMEDY.format(device=name) for name in DEVICES if name != "cpu"},
            evaluates=present and not apple,
            note=None if apple else "evaluated here; executed on macOS",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that the installed converter cannot take, or takes wrongly."""
        require("writing Core ML packages", ("coremltools",), _REMEDY)
        from .failures import conversion_errors
        from .prepare import find_unsupported, prepared
        from .quiet import hushed

        with hushed(), conversion_errors():
            return find_unsupported(prepared(graph))

    def convert(self, graph: Graph, options: CoreMlOptions, directory: Path, stem: str) -> Artifact:
        """Write `directory/stem.mlpackage`.

        Raises:
            ConversionError: Core ML cannot express an operator, a dtype or a dim.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: coremltools is not installed.
        """
        require("writing Core ML packages", ("coremltools",), _REMEDY)
        from .convert import to_package

        path = directory / f"{stem}{self.suffix}"
        notes = to_package(graph, options, path)
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch", "coremltools")),
            notes=notes,
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> CoreMlSession:
        """Load a written package: evaluated here, executed on macOS.

        `signature` adds dims' names, and dtypes that Core ML's arrays do not have.
        """
        require("evaluating Core ML packages", ("coremltools",), _REMEDY)
        from .session import CoreMlSession

        return CoreMlSession(artifact, device, signature)

    def trail(self, graph: Graph, options: CoreMlOptions, artifact: Path, scratch: Path) -> Trail:
        """Which value of `artifact` is which node of `graph`; see `Tracing`."""
        require("writing Core ML packages", ("coremltools",), _REMEDY)
        from .trail import trail

        return trail(self, graph, options, artifact, scratch)
