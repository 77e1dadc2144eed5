"""From a `Graph` to an engine on disk, for both products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError
from ..onnx.target import OnnxOptions, OnnxTarget
from .build import build
from .options import Settings, parse_opt
from .parse import Origin, parse
from .profiles import ShapeRange, example_sizes, profile_of

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ..base import Artifact
    from .products import Product

__all__ = ["OnnxNetwork", "make_engine", "settled_profile", "write_network"]

# What networks take and return, but for types that only quantised tensors have.
_DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class OnnxNetwork:
    """The ONNX file that an engine is built from, and the sizes it is to be built for."""

    onnx: Artifact
    profile: Mapping[str, ShapeRange]
    origin: Origin

    def build_facts(self, precision: str, settings: Settings) -> dict[str, Any]:
        """What decides the engine, as JSON."""
        return {
            "precision": precision,
            "profile": {name: shapes.to_json() for name, shapes in self.profile.items()},
            **settings.to_json(),
        }


def write_network(
    graph: Graph, opset: int | None, opt: str | None, directory: Path, stem: str
) -> OnnxNetwork:
    """Write `directory/stem.onnx`, and settle the profile.

    Raises:
        UsageError: the profile does not fit the model's dims.
        ConversionError: ONNX cannot express an operator, or TensorRT a dtype at the border.
        OSError: the directory cannot be written or is full.
    """
    profile = settled_profile(graph, opt)
    origins: dict[str, Any] = {}
    onnx = OnnxTarget().convert(
        graph,
        OnnxOptions(opset=opset, dialect="tensorrt"),
        directory,
        stem,
        origins=origins,
    )

    def origin(node: str) -> str:
        found = origins.get(node)
        return "" if found is None else ", ".join(filter(None, (found.module, found.location)))

    return OnnxNetwork(onnx, profile, origin)


def settled_profile(graph: Graph, opt: str | None) -> dict[str, ShapeRange]:
    """The profile of a model whose border TensorRT can have.

    Raises:
        UsageError: the profile does not fit the model's dims.
        ConversionError: TensorRT does not have a dtype at the border.
    """
    _require_dtypes(graph)
    return profile_of(graph.inputs, parse_opt(opt) if opt else {}, example_sizes(graph))


def make_engine(product: Product, network: OnnxNetwork, settings: Settings, path: Path) -> None:
    """Build the engine and write it at `path`.

    Raises:
        ConversionError: the parser or the builder refuses a part of the network.
        MissingRequirementError: the build needs a GPU or a library that is not here.
        OSError: the engine cannot be written.
    """
    parsed = parse(product, network.onnx.path, network.origin)
    path.write_bytes(build(parsed, network.profile, settings, network.origin))


def _require_dtypes(graph: Graph) -> None:
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype not in _DTYPES:
            kind = "input" if spec in graph.inputs else "output"
            raise ConversionError(
                f"the {kind} {spec.name} is {spec.dtype}, which TensorRT networks cannot have",
                hint=f"cast it in the model to one of {', '.join(_DTYPES)}",
            )
