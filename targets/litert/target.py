"""The LiteRT format: built through litert_torch, run on ai_edge_litert."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..watching import Trail
    from .session import LiteRtSession

__all__ = ["LiteRtOptions", "LiteRtTarget"]

_REMEDY = 'pip install "isomorph[litert]"'
_BUILDERS = ("litert_torch", "litert_converter", "ai_edge_litert")


@dataclass(frozen=True)
class LiteRtOptions:
    """The LiteRT target has no options: a `.tflite` file is written one way."""


class LiteRtTarget:
    """Writes `NAME.tflite` and opens it on LiteRT's interpreter (CPU, XNNPACK)."""

    name = "litert"
    suffix = ".tflite"
    extra = "litert"
    options_type = LiteRtOptions
    precisions = ("fp32", "fp16")

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.tflite",)

    def capability(self) -> Capability:
        """What is installed; imports none of it."""
        builds = all(map(importable, _BUILDERS))
        runs = importable("ai_edge_litert")
        return Capability(
            installed=builds and runs,
            version=installed_version("litert-torch") if builds else None,
            builds=builds,
            runs=runs,
            devices=("cpu",) if runs else (),
            remedy=None if builds and runs else _REMEDY,
            package="litert-torch",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that the installed litert_torch has no lowering for, or a wrong one."""
        require("writing LiteRT files", _BUILDERS, _REMEDY)
        from .prepare import find_unsupported

        return find_unsupported(graph)

    def convert(self, graph: Graph, options: LiteRtOptions, directory: Path, stem: str) -> Artifact:
        """Write `directory/stem.tflite`.

        Raises:
            ConversionError: LiteRT cannot express an operator, an axis is dynamic, or LiteRT's
                own interpreter refuses the file.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: the packages are not installed.
        """
        require("writing LiteRT files", _BUILDERS, _REMEDY)
        from .convert import to_tflite

        content = to_tflite(graph)
        path = directory / f"{stem}{self.suffix}"
        path.write_bytes(content)
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(
                ("torch", "litert-torch", "litert-converter", "ai-edge-litert")
            ),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> LiteRtSession:
        """Load `artifact` on LiteRT's interpreter.

        The file carries names, dtypes and shapes; `signature` is compared with them.
        """
        require("running LiteRT files", ("ai_edge_litert",), _REMEDY)
        from .session import LiteRtSession

        return LiteRtSession(artifact, device, signature)

    def trail(self, graph: Graph, options: LiteRtOptions, artifact: Path, scratch: Path) -> Trail:
        """Which value of `artifact` is which node of `graph`; see `Tracing`."""
        require("writing LiteRT files", _BUILDERS, _REMEDY)
        from .trail import trail

        return trail(self, graph, options, artifact, scratch)
