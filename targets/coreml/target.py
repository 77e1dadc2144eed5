"""The Core ML format: converted by coremltools, evaluated here, run by Apple's runtime on macOS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .session import CoreMlSession

__all__ = ["CoreMlOptions", "CoreMlTarget"]

_REMEDY = 'pip install "isomorph[coreml]"'


@dataclass(frozen=True)
class CoreMlOptions:
    """What `--set` can choose."""


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
        """What is installed; imports none of it."""
        present = importable("coremltools")
        return Capability(
            installed=present,
            version=installed_version("coremltools") if present else None,
            builds=present,
            runs=present,
            devices=("cpu",) if present else (),
            remedy=None if present else _REMEDY,
            package="coremltools",
            note="evaluated off macOS",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that the installed converter cannot take, or takes wrongly."""
        require("writing Core ML packages", ("coremltools",), _REMEDY)
        return []

    def convert(self, graph: Graph, options: CoreMlOptions, directory: Path, stem: str) -> Artifact:
        """Write `directory/stem.mlpackage`."""
        require("writing Core ML packages", ("coremltools",), _REMEDY)
        from .convert import to_package

        path = directory / f"{stem}{self.suffix}"
        to_package(graph, path)
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch", "coremltools")),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> CoreMlSession:
        """Load a written package."""
        require("evaluating Core ML packages", ("coremltools",), _REMEDY)
        from .session import CoreMlSession

        return CoreMlSession(artifact, device, signature)
