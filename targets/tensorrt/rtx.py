"""TensorRT for RTX: engines built without a GPU, their network evaluated here, run on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Session, Signature, Unsupported
from ..packages import found_versions, importable, require
from .gpu import find_gpu
from .options import RtxOptions
from .products import RTX

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..watching import Trail

__all__ = ["TensorRtRtxTarget"]

_BUILDERS = ("onnx", "onnx_ir", "onnxscript", RTX.module)
# GPUs that TensorRT for RTX 1.7 runs on: its ComputeCapability. There is no 9.0 (H100, H200).
_RUNS_ON = ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1))
_GPU_REMEDY = "run on a machine with an NVIDIA RTX GPU and its driver"


class TensorRtRtxTarget:
    """Writes `NAME.rtx.engine`, and beside it the network that it was built from."""

    name = RTX.name
    suffix = ".rtx.engine"
    extra = "tensorrt-rtx"
    options_type = RtxOptions
    precisions = ("fp32", "fp16", "bf16")

    def files(self, stem: str) -> tuple[str, ...]:
        return tuple(
            f"{stem}{suffix}"
            for suffix in (self.suffix, ".rtx.onnx", ".rtx.onnx.data", ".rtx.json")
        )

    def capability(self) -> Capability:
        """What is installed; imports none of it."""
        present = all(map(importable, _BUILDERS))
        gpu = find_gpu() if present else None
        if gpu is not None and gpu.capability not in _RUNS_ON:
            gpu = None
        return Capability(
            installed=present,
            version=RTX.version() if present else None,
            builds=present,
            runs=present,
            devices=() if not present else ("cpu",) if gpu is None else ("cuda", "cpu"),
            remedy=None if present else RTX.remedy,
            device_remedies={} if gpu is not None else {"cuda": _GPU_REMEDY},
            package="tensorrt-rtx-cu13",
            evaluates=present and gpu is None,
            note=None if gpu is not None else "network evaluated here; the engine needs its GPU",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that ONNX cannot take; what TensorRT refuses only a build tells."""
        from .dialect import find_unsupported

        return find_unsupported(graph)

    def convert(self, graph: Graph, options: RtxOptions, directory: Path, stem: str) -> Artifact:
        """Write `directory/stem.rtx.engine`, its network and its recipe.

        Raises:
            UsageError: a profile or a compute capability that cannot be.
            ConversionError: ONNX, the parser or the builder refuses a part of the model.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: a package is not installed.
        """
        require(f"building {RTX.title} engines", _BUILDERS, RTX.remedy)
        from ...hashing import sha256_of
        from .making import make_engine, write_network
        from .recipe import Recipe

        network = write_network(graph, options.opset, options.opt, directory, f"{stem}.rtx")
        path, recipe = directory / f"{stem}{self.suffix}", directory / f"{stem}.rtx.json"
        make_engine(RTX, network, options.settings, path)
        hashes = {**network.onnx.hashes, path: sha256_of(path)}
        Recipe(
            product=self.name,
            version=RTX.version() or "unknown",
            network=network.onnx.path.name,
            files={file.name: digest for file, digest in hashes.items()},
            build=network.build_facts(graph.precision, options.settings),
        ).write(recipe)
        return Artifact(
            path=path,
            files=(path, *network.onnx.files, recipe),
            format=self.name,
            inputs=network.onnx.inputs,
            outputs=network.onnx.outputs,
            versions={
                **network.onnx.versions,
                **found_versions(("tensorrt-rtx-cu13",)),
            },
            settled={**network.onnx.settled, "sm": ",".join(options.compute_capabilities())},
            hashes=hashes,
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> Session:
        """Evaluate the network that the engine was built from, or run the engine on a GPU."""
        require(f"opening {RTX.title} engines", (RTX.module,), RTX.remedy)
        from .opening import open_rtx

        return open_rtx(artifact, device, signature)

    def trail(self, graph: Graph, options: RtxOptions, artifact: Path, scratch: Path) -> Trail:
        """Which value of `artifact`'s network is which node of `graph`; see `Tracing`."""
        require(f"building {RTX.title} engines", _BUILDERS, RTX.remedy)
        from .trail import trail

        return trail(graph, options, artifact, scratch)

    def verify(self, artifact: Path) -> list[str]:
        """What `validate` is to note: an engine that its network does not build to.

        Raises:
            InputFileError: the recipe is missing or damaged.
        """
        require(f"building {RTX.title} engines", (RTX.module,), RTX.remedy)
        from .opening import rebuilt_alike

        note = rebuilt_alike(artifact)
        return [note] if note else []
