"""TensorRT engines that are built and proved on the device, by a package written here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import UsageError
from ...base import Artifact, Capability, Session, Signature, Unsupported
from ...packages import importable, installed_version, require
from ..options import TensorRtOptions
from ..products import TENSORRT, parsers

if TYPE_CHECKING:
    from ....exporter.graph import Graph

__all__ = ["DeferredTarget"]

_BUILDERS = ("onnx", "onnx_ir", "onnxscript")
_REMEDY = 'pip install "isomorph[tensorrt-rtx]"'


class DeferredTarget:
    """Writes the folder `NAME.trt-deferred`; the engine comes to be on the device."""

    name = TENSORRT.name
    # What the registry gives this target for, and not the one of the same name that builds here.
    key = f"{TENSORRT.name}:deferred"
    suffix = ".trt-deferred"
    extra = "onnx"
    options_type: type = TensorRtOptions
    precisions: tuple[str, ...] = ("fp32", "fp16", "bf16")
    # What the model computes goes into the folder too (`validation.golden`).
    golden = True

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}{self.suffix}",)

    def capability(self) -> Capability:
        """What is installed; imports none of it.

        The device "cpu" means that the network is computed here: the engine does not exist yet.
        """
        builds = all(map(importable, _BUILDERS))
        runs = bool(parsers()) or importable("onnxruntime")
        return Capability(
            installed=builds,
            version=installed_version("onnx") if builds else None,
            builds=builds,
            runs=runs,
            devices=("cpu",) if runs else (),
            remedy=None if builds and runs else _REMEDY,
            package="onnx",
            note="network computed here; the engine is built and checked on its device",
            evaluates=runs,
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that ONNX cannot take; what TensorRT's builder refuses the device tells."""
        from ..dialect import find_unsupported

        return find_unsupported(graph)

    def convert(
        self, graph: Graph, options: TensorRtOptions, directory: Path, stem: str
    ) -> Artifact:
        """Write the folder `directory/stem.trt-deferred`, all but the golden vectors.

        Raises:
            UsageError: a profile that cannot be, or an option of the device's.
            ConversionError: ONNX cannot express a part of the model.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: the onnx packages are not installed.
        """
        require("writing packages for TensorRT", _BUILDERS, _REMEDY)
        if options.timing_cache is not None:
            raise UsageError(
                "a timing cache belongs to the device that builds the engine",
                hint="leave it out here; there: build_engine.py --timing-cache FILE",
            )
        from .packing import SCRIPT, pack

        folder = directory / f"{stem}{self.suffix}"
        onnx = pack(graph, options, folder, stem)
        return Artifact(
            path=folder,
            files=(folder,),
            format=self.name,
            inputs=onnx.inputs,
            outputs=onnx.outputs,
            versions=onnx.versions,
            settled=onnx.settled,
            notes=(
                f"copy {folder.name} to the device and run there: "
                f"python3 {folder.name}/{SCRIPT} (it needs TensorRT and numpy)",
            ),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> Session:
        """Compute the network that the engine will be built from.

        Raises:
            InputFileError: the folder lacks a file, or holds one that was changed.
            MissingRequirementError: neither a parser nor ONNX Runtime is installed.
        """
        from .opening import open_package

        return open_package(artifact, device, signature)

    def verify(self, artifact: Path) -> list[str]:
        """For `validate`: what opening does not read is that of the package too.

        Raises:
            InputFileError: a file is missing or was changed.
        """
        from .opening import demand_whole

        demand_whole(artifact)
        return []
