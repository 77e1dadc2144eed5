"""The OpenVINO format: converted by OpenVINO's PyTorch frontend, run by its own runtime."""

from __future__ import annotations

from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..watching import Trail
    from .session import OpenVinoSession

__all__ = ["OpenVinoOptions", "OpenVinoTarget"]

_REMEDY = 'pip install "isomorph[openvino]"'


@dataclass(frozen=True)
class OpenVinoOptions:
    """The OpenVINO target has no options: weights keep the precision of the graph."""


class OpenVinoTarget:
    """Writes `NAME.xml` with its weights in `NAME.bin`, and opens them on OpenVINO."""

    name = "openvino"
    suffix = ".xml"
    extra = "openvino"
    options_type = OpenVinoOptions
    precisions = ("fp32", "fp16", "bf16")

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.xml", f"{stem}.bin")

    def capability(self) -> Capability:
        """What is installed; imports none of it.

        A GPU or NPU is named where its plug-in, its driver's loader and a device node are
        there; whether OpenVINO accepts it shows when a file is opened on it.
        """
        present = importable("openvino")
        return Capability(
            installed=present,
            version=installed_version("openvino") if present else None,
            builds=present,
            runs=present,
            devices=("cpu", *_accelerators()) if present else (),
            remedy=None if present else _REMEDY,
            package="openvino",
            device_remedies={
                "gpu": "install Intel's GPU driver with its OpenCL runtime",
                "npu": "install Intel's NPU driver",
            },
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators of `graph` that the installed frontend cannot take, or takes wrongly."""
        require("writing OpenVINO IR", ("openvino",), _REMEDY)
        from .prepare import find_unsupported

        return find_unsupported(graph)

    def convert(
        self, graph: Graph, options: OpenVinoOptions, directory: Path, stem: str
    ) -> Artifact:
        """Write `directory/stem.xml` and `directory/stem.bin`.

        Raises:
            ConversionError: OpenVINO cannot express an operator or a dtype.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: openvino is not installed.
        """
        require("writing OpenVINO IR", ("openvino",), _REMEDY)
        from .convert import to_openvino
        from .storage import save

        path = directory / f"{stem}{self.suffix}"
        model, notes = to_openvino(graph)
        files = save(model, path)
        return Artifact(
            path=path,
            files=files,
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch", "openvino")),
            notes=notes,
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> OpenVinoSession:
        """Load `artifact` on an OpenVINO device; names and bounds are in the file.

        `signature` adds the names of dynamic dims, which the file does not hold.
        """
        require("running OpenVINO IR", ("openvino",), _REMEDY)
        from .session import OpenVinoSession

        return OpenVinoSession(artifact, device, signature)

    def trail(self, graph: Graph, options: OpenVinoOptions, artifact: Path, scratch: Path) -> Trail:
        """Which value of `artifact` is which node of `graph`; see `Tracing`."""
        require("writing OpenVINO IR", ("openvino",), _REMEDY)
        from .trail import trail

        return trail(self, graph, options, artifact, scratch)


# Device nodes and driver loaders on Linux; other systems are told "cpu" only.
_DRIVERS = {"gpu": ("dri/renderD*", "OpenCL"), "npu": ("accel/accel*", "ze_loader")}


def _accelerators() -> tuple[str, ...]:
    spec = find_spec("openvino")
    if spec is None or not spec.origin:
        return ()
    libraries = Path(spec.origin).parent / "libs"
    return tuple(
        name
        for name, (node, loader) in _DRIVERS.items()
        if any(libraries.glob(f"*intel_{name}_plugin*"))
        and any(Path("/dev").glob(node))
        and find_library(loader)
    )
