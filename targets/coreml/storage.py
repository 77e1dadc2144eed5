"""An `.mlpackage` whose bytes depend on nothing but its content."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..probing import demand_writable

__all__ = ["MODEL", "read_spec", "temporary_files_beside", "write_spec", "writing_errors"]

MODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
"""Where the specification lies in a package that coremltools wrote."""


@contextlib.contextmanager
def temporary_files_beside(package: Path) -> Iterator[None]:
    """While active, temporary files are made beside `package`, and go at the end.

    coremltools writes all weights to one first. It belongs on the disk that was chosen, which
    has room for them, and must not stay when a conversion fails.
    """
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix=".coremltools-", dir=package.parent) as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def writing_errors(package: Path) -> Iterator[None]:
    """Tell a full or read-only disk, which coremltools' native parts call a RuntimeError.

    Raises:
        OSError: the folder cannot be written or is full.
    """
    try:
        yield
    except RuntimeError as error:
        demand_writable(package)
        if "[MIL FileWriter]" in str(error):  # there was room for the probe, but not for this
            raise OSError(errno.ENOSPC, "coremltools could not write the weights") from error
        raise


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
    _make_readable(package)


def _make_readable(package: Path) -> None:
    """coremltools makes parts of a package readable to their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (package, *package.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _identifier(path: str) -> str:
    """coremltools draws random ones; they only have to differ within a package."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"isomorph:coreml:{path}"))
