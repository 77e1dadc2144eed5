"""TensorRT: engines built and run on the GPU that will use them."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...errors import InputFileError, UsageError
from ..base import Artifact, Capability, Session, Signature, Target, Unsupported
from ..packages import importable, require
from .gpu import find_gpu
from .options import TensorRtOptions
from .products import TENSORRT

if TYPE_CHECKING:
    from ...exporter.graph import Graph

__all__ = ["TensorRtTarget"]

_BUILDERS = ("onnx", "onnx_ir", "onnxscript", TENSORRT.module)
_NO_GPU = (
    f"export on the machine whose NVIDIA GPU is to run it, after: {TENSORRT.remedy}; or here: "
    "--defer (packs what builds it there) or --format tensorrt-rtx"
)


class TensorRtTarget:
    """Writes `NAME.engine`; without a GPU nothing but the network that it would be built from."""

    name = TENSORRT.name
    suffix = ".engine"
    extra = "tensorrt"
    options_type = TensorRtOptions
    precisions = ("fp32", "fp16", "bf16")
    # The format that is written, checked, where this one cannot be built.
    fallback = "onnx"
    fallback_options = MappingProxyType({"dialect": "tensorrt"})

    def files(self, stem: str) -> tuple[str, ...]:
        return tuple(f"{stem}{self.suffix}{more}" for more in ("", ".onnx", ".onnx.data"))

    def capability(self) -> Capability:
        """What is installed; imports none of it, and asks CUDA's driver in another process."""
        present = all(map(importable, _BUILDERS))
        gpu = find_gpu()
        ready = present and gpu is not None
        remedy = None if ready else _NO_GPU if gpu is None else TENSORRT.remedy
        return Capability(
            installed=present,
            version=TENSORRT.version() if present else None,
            builds=ready,
            runs=ready,
            devices=("cuda",) if ready else (),
            remedy=remedy,
            package="tensorrt",
            note=None if ready else "an engine is built on the GPU that runs it",
            lacks="it shows no NVIDIA GPU, and an engine is built on the one that runs it"
            if gpu is None
            else None,
        )

    def deferred(self) -> Target:
        """The target that writes a package which builds the engine on the device."""
        from .deferred.target import DeferredTarget

        return DeferredTarget()

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that ONNX cannot take; what TensorRT refuses only a build tells."""
        from .dialect import find_unsupported

        return find_unsupported(graph)

    def demand(self, graph: Graph, options: TensorRtOptions) -> None:
        """What a build would refuse of the model's border, wherever it is done.

        Raises:
            UsageError: a profile that cannot be.
            ConversionError: a dtype that TensorRT's networks cannot have.
        """
        from .making import settled_profile

        settled_profile(graph, options.opt)

    def convert(
        self, graph: Graph, options: TensorRtOptions, directory: Path, stem: str
    ) -> Artifact:
        """Write `directory/stem.engine`, and beside a stripped one the network with its weights.

        Raises:
            UsageError: a profile that cannot be.
            ConversionError: ONNX, the parser or the builder refuses a part of the model.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: a package or a GPU is missing.
        """
        import tempfile

        from .making import make_engine, write_network
        from .opening import demand_gpu

        require(f"building {TENSORRT.title} engines", _BUILDERS, TENSORRT.remedy)
        demand_gpu(TENSORRT)
        path = directory / f"{stem}{self.suffix}"
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            place = directory if options.strip_plan else Path(folder)
            network = write_network(graph, options.opset, options.opt, place, path.name)
            make_engine(TENSORRT, network, options.settings, path)
        return Artifact(
            path=path,
            files=(path, *(network.onnx.files if options.strip_plan else ())),
            format=self.name,
            inputs=network.onnx.inputs,
            outputs=network.onnx.outputs,
            versions={**network.onnx.versions, "tensorrt": TENSORRT.version() or "unknown"},
            settled={**network.onnx.settled, "timing_cache": _name_of(options.timing_cache)},
        )

    def open(
        self, artifact: Path, device: str = "cuda", signature: Signature | None = None
    ) -> Session:
        """Run the engine on the GPU."""
        from .opening import demand_gpu, known_device

        if known_device(device, TENSORRT) != "cuda":
            raise UsageError("TensorRT engines run on a GPU only", hint="choose cuda")
        require(f"running {TENSORRT.title} engines", (TENSORRT.module,), TENSORRT.remedy)
        if not artifact.is_file():
            raise InputFileError(f"{artifact} does not exist", hint="name a .engine file")
        demand_gpu(TENSORRT)
        from .engine import EngineSession

        return EngineSession(TENSORRT, artifact, signature)


def _name_of(file: str | None) -> str | None:
    """What a manifest may say of a file: nothing in it depends on the machine's paths."""
    return None if file is None else Path(file).name
