"""The manifest of a new artifact, and what an old one says is to be replaced."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import InputFileError
from ..manifest import SCHEMA, Manifest, file_entries, manifest_path

if TYPE_CHECKING:
    from ..targets.base import Artifact, Target
    from ..validation.report import Report
    from .calling import Constant
    from .source import Request, Source

__all__ = ["build_manifest", "companions", "stale_files"]


def build_manifest(
    artifact: Artifact,
    source: Source,
    request: Request,
    options: Any,
    precision: str,
    reports: Sequence[Report],
    verdict: str,
    notes: Sequence[str],
) -> Manifest:
    """Describe `artifact`; its bytes are hashed here unless that was done while writing."""
    graph = source.capture.graph
    files = (artifact.path, *(f for f in artifact.files if f != artifact.path))
    entries = file_entries(files, artifact.hashes)
    report = reports[0].to_json() if reports else {}
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "isomorph": __version__,
        "format": artifact.format,
        "sha256": entries[0]["sha256"],
        "files": entries,
        "source": {
            "name": source.path.name if source.path else None,
            "sha256": source.fingerprint.hexdigest() if source.fingerprint else None,
        },
        "architecture": _portable(graph.provenance.architecture),
        "capture": graph.provenance.strategy,
        "versions": {"torch": graph.provenance.torch_version, **artifact.versions},
        "options": {**dataclasses.asdict(options), **artifact.settled},
        "precision": precision,
        "request": _request(request),
        "signature": {
            "inputs": [spec.to_json() for spec in artifact.inputs],
            "outputs": [spec.to_json() for spec in artifact.outputs],
            "arguments": _tree(graph.call.input_tree, graph.call.input_leaves),
            "results": _tree(graph.call.output_tree, graph.call.output_leaves),
        },
        "verdict": verdict,
        "evidence": reports[0].evidence.to_json() if reports else None,
        "outputs": report.get("outputs", []),
        "notes": list(notes),
    }
    return Manifest(document)


def _request(request: Request) -> dict[str, Any]:
    """What a later `validate` can repeat: texts, but no tensors and no absolute paths."""
    document: dict[str, Any] = {}
    if model := _portable(request.model):
        document["model"] = model
    if texts := request.input_texts():
        document["inputs"] = list(texts)
    if request.dynamic:
        document["dynamic"] = dict(request.dynamic)
    return document


def _portable(spec: str | None) -> str | None:
    """A `--model` text unless it holds an absolute path, which means nothing elsewhere."""
    if spec is None:
        return None
    head, colon, tail = spec.rpartition(":")
    return f"{Path(head).name}:{tail}" if colon and Path(head).is_absolute() else spec


def _tree(tree: Any, leaves: Sequence[str | Constant]) -> Any:
    """The call's or result's structure as JSON: a tensor is `{"tensor": NAME}`."""
    from torch.utils import _pytree as pytree

    marks = [_Tensor(leaf) if isinstance(leaf, str) else leaf.value for leaf in leaves]
    return _plain(pytree.tree_unflatten(marks, tree))


@dataclasses.dataclass(frozen=True)
class _Tensor:
    name: str


def _plain(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return {"tensor": value.name}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def stale_files(target: Target, destination: Path) -> list[Path]:
    """Files beside `destination` that an older artifact of that name consists of."""
    path = manifest_path(destination)
    names = [path.name, f"{destination.name}.report.json"]
    if path.is_file():
        # An unreadable manifest describes nothing; it is replaced.
        with contextlib.suppress(InputFileError):
            names += Manifest.read(path).files
    # Only what an artifact of this name may own: a manifest must not name other people's files.
    owned = {other.name for other in companions(target, destination)}
    return [
        path.with_name(name) for name in names if name in owned or name.startswith(destination.name)
    ]


def companions(target: Target, destination: Path) -> list[Path]:
    """Every path that an artifact at `destination` may be written to, itself first."""
    stem = destination.name.removesuffix(target.suffix)
    names = [
        *target.files(stem),
        f"{destination.name}.manifest.json",
        f"{destination.name}.report.json",
    ]
    return [destination.with_name(name) for name in names]
