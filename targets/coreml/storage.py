"""An `.mlpackage` whose bytes depend on nothing but its content."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

__all__ = ["MODEL", "read_spec", "write_spec"]

MODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
"""Where the specification lies in a package that coremltools wrote."""


def read_spec(package: Path) -> Any:
    """The `Model` message of a package that was just written."""
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model()
    spec.ParseFromString((package / MODEL).read_bytes())
    return spec


def write_spec(spec: Any, package: Path) -> None:
    """Put the specification back, maps in order, and give the manifest's items fixed identifiers.

    Raises:
        OSError: the folder cannot be written or is full.
    """
    (package / MODEL).write_bytes(spec.SerializeToString(deterministic=True))
    manifest = package / "Manifest.json"
    document = json.loads(manifest.read_text(encoding="utf-8"))
    root = document["itemInfoEntries"][document["rootModelIdentifier"]]["path"]
    entries = {
        _identifier(item["path"]): item
        for item in sorted(document["itemInfoEntries"].values(), key=lambda item: item["path"])
    }
    document = {**document, "itemInfoEntries": entries, "rootModelIdentifier": _identifier(root)}
    manifest.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")


def _identifier(path: str) -> str:
    """coremltools draws random ones; they only have to differ within a package."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"isomorph:coreml:{path}"))
