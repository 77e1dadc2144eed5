"""The TorchScript format: written from the captured program, run by torch's own interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Signature, Unsupported
from ..cuda import CUDA_REMEDY, torch_has_cuda
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .session import TorchScriptSession

__all__ = ["TorchScriptOptions", "TorchScriptTarget"]

_REMEDY = "pip install isomorph"
_DEPRECATED = (
    "TorchScript is deprecated upstream: torch still loads these files, but does not develop "
    "the format; AOTInductor (-f aotinductor) is its successor"
)


@dataclass(frozen=True)
class TorchScriptOptions:
    """The TorchScript target has no options."""


class TorchScriptTarget:
    """Writes `NAME.ts`, which holds names, weights and program, and opens it with torch."""

    name = "torchscript"
    suffix = ".ts"
    extra = ""
    options_type = TorchScriptOptions
    precisions = ("fp32", "fp16", "bf16")

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.ts",)

    def capability(self) -> Capability:
        """What is installed; imports none of it."""
        there = importable("torch")
        devices: tuple[str, ...] = ()
        if there:
            devices = ("cpu", "cuda") if torch_has_cuda() else ("cpu",)
        return Capability(
            installed=there,
            version=installed_version("torch") if there else None,
            builds=there,
            runs=there,
            devices=devices,
            remedy=None if there else _REMEDY,
            device_remedies={} if "cuda" in devices else {"cuda": CUDA_REMEDY},
            note="deprecated upstream",
            package="torch",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators of `graph` that the installed torch has no TorchScript operator for."""
        require("writing TorchScript", ("torch",), _REMEDY)
        from ...exporter.flattening import flat_program
        from ...exporter.legalize import drop_checks
        from .source import find_unsupported

        program = flat_program(graph)
        drop_checks(program)
        return find_unsupported(program)

    def convert(
        self, graph: Graph, options: TorchScriptOptions, directory: Path, stem: str
    ) -> Artifact:
        """Write `directory/stem.ts`.

        Raises:
            ConversionError: TorchScript has no form for an operator.
            OSError: the file cannot be written.
        """
        require("writing TorchScript", ("torch",), _REMEDY)
        import torch

        from ...exporter.flattening import flat_program
        from ...exporter.legalize import drop_checks
        from ..unsupported import cannot_express
        from .archive import build, save
        from .source import find_unsupported, write_body

        program = flat_program(graph)
        drop_checks(program)
        if wrong := find_unsupported(program):
            raise cannot_express("TorchScript", wrong)
        body = write_body(program, [spec.name for spec in graph.inputs])
        kept = {**program.state_dict, **program.constants}
        tensors = {name: t for name, t in kept.items() if isinstance(t, torch.Tensor)}
        module = build(body, tensors, len(graph.outputs))
        path = directory / f"{stem}{self.suffix}"
        save(
            module,
            path,
            {
                "format": 1,
                "inputs": [spec.to_json() for spec in graph.inputs],
                "outputs": [spec.to_json() for spec in graph.outputs],
            },
        )
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch",)),
            notes=(_DEPRECATED,),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> TorchScriptSession:
        """Load `artifact` with torch; the file holds its names, so `signature` is not needed."""
        require("running TorchScript", ("torch",), _REMEDY)
        from .session import TorchScriptSession

        return TorchScriptSession(artifact, device)
