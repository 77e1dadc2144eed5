"""The ONNX format: built through torch's exporter, run on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import ConversionError, UsageError
from ..base import Artifact, Capability, Signature, Unsupported
from ..packages import found_versions, importable, installed_version, require
from .dialect import PLAIN, Dialect

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ...exporter.graph import Graph, Origin
    from ...exporter.signature import TensorSpec
    from ..watching import Trail
    from .session import OnnxSession

__all__ = ["OnnxOptions", "OnnxTarget"]

_REMEDY = 'pip install "isomorph[onnx]"'
_CUDA_REMEDY = (
    "run: pip uninstall onnxruntime; "
    'pip install "isomorph[onnx-cuda]" (the two wheels overwrite each other)'
)
_BUILDERS = ("onnx", "onnx_ir", "onnxscript")
_HALF_NOTES = (
    "half convolutions can crash ONNX Runtime (seen with 1.32 on a CPU); it was run, and is to be "
    "run, with InferenceSession(..., disabled_optimizers=['NchwcTransformer'])",
)
_OPSETS = range(18, 24)
_DEFAULT_OPSET = {"fp32": 20, "fp16": 20, "bf16": 22}


@dataclass(frozen=True)
class OnnxOptions:
    """Options of the ONNX target.

    opset: version of the ONNX operator set, 18 to 23; none: 20, or 22 for bfloat16,
        which older convolutions and poolings do not take.
    optimize: run the optimisers of the onnx libraries (constant folding, fusions).
    external_data: weights beside the model in `NAME.onnx.data`: by size (above
        1.5 GB; a protobuf file ends at 2 GiB), always, or never.
    dialect: for whom the file is written: onnx (ONNX Runtime and others), or tensorrt, whose
        parser refuses some operators that ONNX has; they are written in others.
    """

    opset: int | None = None
    optimize: bool = True
    external_data: Literal["auto", "always", "never"] = "auto"
    dialect: Literal["onnx", "tensorrt"] = "onnx"

    def __post_init__(self) -> None:
        if self.opset is not None and self.opset not in _OPSETS:
            raise UsageError(
                f"ONNX opset {self.opset} is out of range",
                hint=f"choose {_OPSETS.start} to {_OPSETS.stop - 1}",
            )
        if self.external_data not in ("auto", "always", "never"):
            raise UsageError(
                f"external_data={self.external_data!r} is unknown",
                hint="choose auto, always or never",
            )

    def opset_for(self, precision: str) -> int:
        """The operator set to write a graph of that precision in."""
        return self.opset if self.opset is not None else _DEFAULT_OPSET[precision]


class OnnxTarget:
    """Writes `NAME.onnx` (and `NAME.onnx.data` for large models) and opens it on ONNX Runtime."""

    name = "onnx"
    suffix = ".onnx"
    extra = "onnx"
    options_type = OnnxOptions
    precisions = ("fp32", "fp16", "bf16")

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.onnx", f"{stem}.onnx.data")

    def capability(self) -> Capability:
        """What is installed; imports none of it."""
        builds = all(map(importable, _BUILDERS))
        runtime = _runtime_version()
        devices: tuple[str, ...] = ()
        if runtime is not None:
            devices = ("cpu", "cuda") if _has_cuda_provider() else ("cpu",)
        complete = builds and runtime is not None
        return Capability(
            installed=complete,
            version=installed_version("onnx") if builds else None,
            builds=builds,
            runs=runtime is not None,
            devices=devices,
            remedy=None if complete else _REMEDY,
            package="onnx",
            device_remedies={} if "cuda" in devices else {"cuda": _CUDA_REMEDY},
        )

    def check(
        self, graph: Graph, dialect: Literal["onnx", "tensorrt"] = "onnx"
    ) -> list[Unsupported]:
        """Operators of `graph` that the installed torch and onnxscript cannot translate."""
        require("writing ONNX", _BUILDERS, _REMEDY)
        from .prepare import find_unsupported

        options = OnnxOptions(dialect=dialect)
        return find_unsupported(graph, options.opset_for(graph.precision), _dialect(options))

    def convert(
        self,
        graph: Graph,
        options: OnnxOptions,
        directory: Path,
        stem: str,
        on_stage: Callable[[str], None] = lambda stage: None,
        origins: dict[str, Origin] | None = None,
    ) -> Artifact:
        """Write `directory/stem.onnx`, checked by onnx's own checker.

        `on_stage` hears the name of each stage as it begins; `origins`, if given, gets where each
        node was written, by the node's name.

        Raises:
            ConversionError: ONNX cannot express an operator, or the checker objects.
            OSError: the directory cannot be written or is full.
            MissingRequirementError: the onnx packages are not installed.
        """
        require("writing ONNX", _BUILDERS, _REMEDY)
        from .convert import to_onnx
        from .storage import INLINE_LIMIT, save, weight_bytes

        on_stage("translate")
        model = to_onnx(
            graph,
            options.opset_for(graph.precision),
            optimize=options.optimize,
            dialect=_dialect(options),
            origins=origins,
        )
        size = weight_bytes(model)
        if options.external_data == "never" and size > _PROTOBUF_LIMIT:
            raise ConversionError(
                f"the weights take {size / 1e9:.1f} GB and an ONNX file holds 2 GB",
                hint="leave external_data at auto",
            )
        external = options.external_data == "always" or (
            options.external_data == "auto" and size > INLINE_LIMIT
        )
        path = directory / f"{stem}{self.suffix}"
        on_stage("write")
        hashes = save(model, path, external=external)
        names = [*model.graph.inputs, *model.graph.outputs]
        del model
        on_stage("check")
        _check(path)
        inputs = graph.inputs
        outputs = tuple(
            _renamed(spec, str(value.name))
            for spec, value in zip(graph.outputs, names[len(inputs) :], strict=True)
        )
        return Artifact(
            path=path,
            files=tuple(hashes),
            format=self.name,
            inputs=inputs,
            outputs=outputs,
            versions=found_versions(("torch", "onnx", "onnx-ir", "onnxscript")),
            notes=_HALF_NOTES if graph.precision != "fp32" else (),
            settled={"opset": options.opset_for(graph.precision)},
            hashes=hashes,
        )

    def open(
        self,
        artifact: Path,
        device: str = "cpu",
        signature: Signature | None = None,
        *,
        optimized: bool = True,
    ) -> OnnxSession:
        """Load `artifact` on ONNX Runtime; `optimized=False` turns its graph optimisations off.

        An ONNX file carries names and dtypes itself; `signature` adds the bounds of dims.
        """
        from .session import OnnxSession

        return OnnxSession(artifact, device, signature, optimized=optimized)

    def trail(self, graph: Graph, options: OnnxOptions, artifact: Path, scratch: Path) -> Trail:
        """Which value of the file is which node of the graph, for localisation."""
        from .trail import trail

        return trail(self, graph, options, artifact, scratch)

    def translated(self, graph: Graph, options: OnnxOptions) -> ExportedProgram:
        """The legalised program that the file's values are named after."""
        from .convert import legalised_program

        return legalised_program(graph, options.opset_for(graph.precision), _dialect(options))


def _dialect(options: OnnxOptions) -> Dialect:
    if options.dialect == "onnx":
        return PLAIN
    from ..tensorrt.dialect import TENSORRT_DIALECT

    return TENSORRT_DIALECT


# A protobuf message ends at 2 GiB; some of it is the graph's.
_PROTOBUF_LIMIT = 2_000_000_000


def _renamed(spec: TensorSpec, name: str) -> TensorSpec:
    return spec if spec.name == name else replace(spec, name=name)


def _check(path: Path) -> None:
    """onnx's checker, by path: it reads the file that was written, external data included."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError) as error:
        first = next(iter(str(error).strip().splitlines()), "no reason given")
        raise ConversionError(
            f"onnx's checker objects to the model that was written: {first}",
            hint="please report this; --set optimize=false or another opset may avoid it",
        ) from error


def _runtime_version() -> str | None:
    if not importable("onnxruntime"):
        return None
    return installed_version("onnxruntime", "onnxruntime-gpu") or "unknown"


def _has_cuda_provider() -> bool:
    """Whether the installed wheel carries the CUDA provider's library."""
    spec = find_spec("onnxruntime")
    if spec is None or not spec.origin:
        return False
    folder = Path(spec.origin).parent / "capi"
    return any(folder.glob("*onnxruntime_providers_cuda*"))
