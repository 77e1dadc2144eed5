"""`NAME.manifest.json`: what an artifact is, where it came from, what is known of it.

Pure Python, so that a device can read it. Nothing in it depends on the time or
the machine's paths: the same export writes the same manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InputFileError
from .exporter.signature import TensorSpec
from .hashing import sha256_of
from .targets.base import PRECISIONS

__all__ = ["SCHEMA", "Manifest", "manifest_path"]

SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """A read or to-be-written manifest; `document` is its JSON."""

    document: Mapping[str, Any]

    @property
    def format(self) -> str:
        """The target's name."""
        return str(self.document["format"])

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Input specs, in the artifact's order."""
        return self._specs("inputs")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Output specs, in the artifact's order."""
        return self._specs("outputs")

    def _specs(self, key: str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec.from_json(d) for d in self.document["signature"][key])

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the artifact's files, the main one first."""
        return tuple(entry["name"] for entry in self.document["files"])

    @property
    def precision(self) -> str:
        """What `--precision` was: "fp32", "fp16" or "bf16"."""
        return str(self.document.get("precision", "fp32"))

    @property
    def request(self) -> Mapping[str, Any]:
        """`model`, `inputs` and `dynamic` as they were given at export, where they were texts."""
        return dict(self.document.get("request") or {})

    def mismatches(self, folder: Path) -> list[str]:
        """Names of the files that are missing or whose bytes are not those described."""
        wrong = []
        for entry in self.document["files"]:
            path = folder / entry["name"]
            regular = path.is_file() or path.is_dir()
            if not regular or sha256_of(path) != entry["sha256"]:
                wrong.append(entry["name"])
        return wrong

    def write(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(self.document, indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Manifest:
        """Read and check the parts that are relied on.

        Raises:
            InputFileError: not a manifest, or one of a newer version.
        """
        try:
            if not path.is_file():
                raise ValueError("it is no regular file")
            document = json.loads(path.read_text(encoding="utf-8"))
            manifest = Manifest(document)
            if document["schema"] > SCHEMA:
                raise InputFileError(
                    f"{path} was written by a newer Isomorph ({document.get('isomorph')})",
                    hint="update Isomorph to read it",
                )
            _ = (manifest.format, manifest.inputs, manifest.outputs)
            _check_names(manifest.files)
            if manifest.precision not in PRECISIONS:
                raise ValueError(f"it names the precision {manifest.precision[:80]!r}")
            _check_request(manifest.request)
        except (
            *(OSError, ValueError, KeyError, TypeError, IndexError),
            *(AttributeError, RecursionError),
        ) as error:
            raise InputFileError(
                f"{path} is no readable manifest ({type(error).__name__}: {error})",
                hint="delete it to go on without, or export again",
            ) from error
        return manifest


def _check_names(names: Sequence[Any]) -> None:
    """Files of an artifact are named, and lie beside the manifest."""
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) < 256 or Path(name).name != name:
            raise ValueError(f"it names the file {str(name)[:80]!r}")


def _check_request(request: Mapping[str, Any]) -> None:
    model, inputs, dynamic = (request.get(key) for key in ("model", "inputs", "dynamic"))
    if not (
        isinstance(model, (str, type(None)))
        and all(isinstance(text, str) for text in inputs or ())
        and all(isinstance(text, str) for text in (dynamic or {}).values())
    ):
        raise ValueError("its request is not as Isomorph writes it")


def manifest_path(artifact: Path) -> Path:
    """Where an artifact's manifest lies."""
    return artifact.with_name(f"{artifact.name}.manifest.json")


def file_entries(files: Sequence[Path], hashes: Mapping[Path, str]) -> list[dict[str, Any]]:
    """Name, bytes and SHA-256 of each file; `hashes` holds those already known."""
    return [
        {
            "name": file.name,
            "bytes": size_of(file),
            "sha256": hashes.get(file) or sha256_of(file),
        }
        for file in files
    ]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size
