"""Finds and reads the files of an `.mlpackage`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from ....errors import InputFileError
from .blob import BlobFile
from .program import Program, read_program

__all__ = ["Package", "read_package"]

_REMEDY = "copy the whole .mlpackage folder again, or export the model again"
_MODEL_PATH = "@model_path/"


@dataclass(frozen=True)
class Package:
    """A package that was read: `spec` is its `Model` message, `program` the ML Program in it."""

    path: Path
    spec: Any
    program: Program


def read_package(path: Path) -> Package:
    """Read a package; weights are mapped, not read.

    Raises:
        InputFileError: a file is missing, truncated or contradictory, or holds no ML Program.
    """
    from google.protobuf.message import DecodeError

    from ..quiet import coremltools

    coremltools()
    from coremltools.proto import Model_pb2

    model = _model_file(path)
    spec = Model_pb2.Model()
    try:
        spec.ParseFromString(model.read_bytes())
    except (DecodeError, OSError) as error:
        raise InputFileError(
            f"{path} holds no Core ML specification that can be read: {error}", hint=_REMEDY
        ) from error
    kind = spec.WhichOneof("Type")
    if kind != "mlProgram":
        raise InputFileError(
            f"{path} holds {kind or 'no model'} where an ML Program (iOS 15 or later) is expected",
            hint="convert it again with minimum_deployment_target iOS 15 or later"
            if kind
            else _REMEDY,
        )
    blobs: dict[str, BlobFile] = {}

    def weights(name: str, offset: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in blobs:
            blobs[name] = BlobFile.open(_beside(model, name))
        return blobs[name].tensor(offset, dtype, shape)

    return Package(path, spec, read_program(spec.mlProgram, weights))


def _model_file(path: Path) -> Path:
    """The specification that `Manifest.json` names as the package's root."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name an .mlpackage folder")
    manifest = path / "Manifest.json"
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        entry = document["itemInfoEntries"][document["rootModelIdentifier"]]["path"]
    except OSError as error:
        raise InputFileError(f"{path} has no Manifest.json", hint=_REMEDY) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{manifest} names no model", hint=_REMEDY) from error
    found = _inside(path / "Data", str(entry))
    if not found.is_file() or found.stat().st_size == 0:
        what = "is empty" if found.is_file() else "does not exist"
        raise InputFileError(f"{found}, the specification, {what}", hint=_REMEDY)
    return found


def _beside(model: Path, name: str) -> Path:
    if not name.startswith(_MODEL_PATH):
        raise InputFileError(f"a weight lies in {name!r}, outside the package", hint=_REMEDY)
    return _inside(model.parent, name.removeprefix(_MODEL_PATH))


def _inside(folder: Path, name: str) -> Path:
    """`folder/name`, refusing names that lead elsewhere."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise InputFileError(f"{name!r} leads out of the package", hint=_REMEDY)
    return folder / parts
