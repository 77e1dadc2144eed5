"""A graph becomes an `.mlpackage`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...exporter.graph import Graph
from ..int32 import beyond_int32
from ..packages import found_versions
from ..unsupported import cannot_express, unsupported
from .attempts import converted
from .border import border_program
from .failures import conversion_errors
from .features import Feature, features, require_features
from .finishing import finish
from .flexible import require_expressible, tensor_types
from .halves import halves_kept
from .options import CoreMlOptions
from .passes import sound_passes
from .prepare import find_unsupported, prepared
from .quiet import coremltools, hushed
from .storage import read_spec, temporary_files_beside, write_spec, writing_errors

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["to_package"]


def to_package(graph: Graph, options: CoreMlOptions, path: Path) -> tuple[str, ...]:
    """Convert `graph` and write it at `path`.

    Returns:
        Notes for the user of the package.

    Raises:
        ConversionError: an operator, a dtype or a dim that Core ML cannot express.
        OSError: the folder cannot be written or is full.
    """
    require_features(graph.inputs, graph.outputs, options.release)
    require_expressible(graph.inputs, options)
    coremltools()
    with hushed(), conversion_errors():
        program = prepared(graph)
        if missing := find_unsupported(program):
            raise cannot_express("Core ML", missing)
        if beyond := beyond_int32(program, "Core ML", outputs=True):
            raise cannot_express("Core ML", [unsupported(node, why) for node, why in beyond])
        inputs, outputs = features(graph.inputs, graph.outputs)
        places = border_program(program, graph)
        _mark_functional(program)
        with conversion_errors(program):
            _convert(program, tensor_types(graph.inputs, inputs, options), options, path)
        spec = read_spec(path)
        versions = found_versions(("torch", "coremltools", "isomorph"))
        finish(spec, graph, inputs, outputs, places, options, versions)
    write_spec(spec, path)
    return _notes(graph, (*inputs, *outputs))


def _convert(
    program: ExportedProgram, inputs: list[Any], options: CoreMlOptions, path: Path
) -> None:
    ct = coremltools()

    def convert() -> None:
        shutil.rmtree(path, ignore_errors=True)  # left by an attempt that failed late
        with halves_kept(program), temporary_files_beside(path), writing_errors(path):
            ct.convert(
                program,
                inputs=inputs,
                convert_to="mlprogram",
                minimum_deployment_target=getattr(ct.target, options.deployment_target),
                # What is float16 in the graph stays so; FLOAT16 would narrow the rest as well.
                compute_precision=ct.precision.FLOAT32,
                package_dir=str(path),
                pass_pipeline=sound_passes(),
                skip_model_load=True,
            )

    converted(program, convert)


def _mark_functional(program: ExportedProgram) -> None:
    """Call the program's dialect ATEN: coremltools asks for it, and it is one by now.

    `run_decompositions({})` would do that as well, by tracing the program again.
    """
    from torch._export.verifier import Verifier

    if program.dialect not in ("ATEN", "EDGE"):
        program._verifiers = [Verifier]


def _notes(graph: Graph, found: tuple[Feature, ...]) -> tuple[str, ...]:
    """What whoever loads the package has to know."""
    specs = (*graph.inputs, *graph.outputs)
    notes = [
        f"{spec.name} is called {feature.name} in the package"
        for spec, feature in zip(specs, found, strict=True)
        if spec.name != feature.name
    ]
    if any(spec.dtype == "int64" for spec in specs):
        notes.append("Core ML computes int64 in int32: values beyond +-2^31 wrap around")
    return tuple(notes)
