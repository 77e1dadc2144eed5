"""Finds and reads the files of an `.mlpackage`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ....errors import InputFileError
from .blob import BlobFile
from .program import Program, read_program

__all__ = ["Package", "read_package"]

_REMEDY = "copy the whole .mlpackage folder again, or export the model again"
_OLD = "convert it again with minimum_deployment_target iOS 15 or later"
_KINDS = {
    f"pipeline{kind}": "check each model of the pipeline on its own"
    for kind in ("", "Classifier", "Regressor")
}
_MODEL_PATH = "@model_path/"
_LARGEST = 2**31
"""Bytes that a protobuf message cannot have."""


@dataclass(frozen=True)
class Package:
    """A package that was read: `spec` is its `Model` message, `program` the ML Program in it."""

    path: Path
    spec: Any
    program: Program

    @property
    def default_function(self) -> str:
        """The function that runs unless another is asked for.

        Raises:
            InputFileError: the package names one that it does not hold.
        """
        name = str(self.spec.description.defaultFunctionName) or "main"
        if name not in self.program.functions:
            raise InputFileError(
                f"{self.path} holds no function {name}, only {', '.join(self.program.functions)}",
                hint=_REMEDY,
            )
        return name


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
    except (DecodeError, OSError, MemoryError) as error:
        raise InputFileError(
            f"{path} holds no Core ML specification that can be read: {error}", hint=_REMEDY
        ) from error
    kind = spec.WhichOneof("Type")
    if kind != "mlProgram":
        raise InputFileError(
            f"{path} holds {kind or 'no model'} where an ML Program (iOS 15 or later) is expected",
            hint=_KINDS.get(kind, _OLD) if kind else _REMEDY,
        )
    blobs: dict[str, BlobFile] = {}

    def weights(name: str, offset: int, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in blobs:
            blobs[name] = BlobFile.open(_beside(path, model, name))
        return blobs[name].tensor(offset, dtype, shape)

    program = read_program(spec.mlProgram, weights)
    if not program.functions:
        raise InputFileError(f"{path} holds an ML Program without functions", hint=_REMEDY)
    return Package(path, spec, program)


def _model_file(path: Path) -> Path:
    """The specification that `Manifest.json` names as the package's root."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise InputFileError(f"{path} {what}", hint="name an .mlpackage folder")
    manifest = path / "Manifest.json"
    if not _is_file(manifest):  # a pipe would be waited for
        raise InputFileError(f"{path} has no Manifest.json", hint=_REMEDY)
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        entry = document["itemInfoEntries"][document["rootModelIdentifier"]]["path"]
    except OSError as error:
        raise InputFileError(f"{path} has no Manifest.json", hint=_REMEDY) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(f"{manifest} names no model", hint=_REMEDY) from error
    found = _inside(path, path / "Data", str(entry))
    if not _is_file(found) or found.stat().st_size == 0:
        what = "is empty" if _is_file(found) else "does not exist"
        raise InputFileError(f"{found}, the specification, {what}", hint=_REMEDY)
    if found.stat().st_size >= _LARGEST:
        raise InputFileError(f"{found} is larger than a specification can be", hint=_REMEDY)
    return found


def _beside(package: Path, model: Path, name: str) -> Path:
    if not name.startswith(_MODEL_PATH):
        raise InputFileError(f"a weight lies in {name!r}, outside the package", hint=_REMEDY)
    return _inside(package, model.parent, name.removeprefix(_MODEL_PATH))


def _inside(package: Path, folder: Path, name: str) -> Path:
    """`folder/name`, refusing names and links that lead out of `package`."""
    found = folder / name
    try:
        if found.resolve().is_relative_to(package.resolve()):
            return found
    except (OSError, ValueError, RuntimeError) as error:  # links in a circle, NUL, endless names
        raise InputFileError(f"{name[:80]!r} is no file's name", hint=_REMEDY) from error
    raise InputFileError(f"{name[:80]!r} leads out of the package", hint=_REMEDY)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
