"""`NAME.rtx.json`: what an engine was built from and how.

An engine cannot be read without its GPU: what it computes is judged by the network that it was
built from, which lies beside it. The hashes say that the two are those of one export.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputFileError
from ...hashing import sha256_of

__all__ = ["Recipe"]

_SCHEMA = 1


@dataclass(frozen=True)
class Recipe:
    """How an engine was built.

    product and version: what built it; network: the ONNX file's name.
    files: SHA-256 (hex) of the engine and of the network's files, by name.
    build: profile, precision and settings, as JSON.
    """

    product: str
    version: str
    network: str
    files: Mapping[str, str]
    build: Mapping[str, Any]

    def write(self, path: Path) -> None:
        """Write as JSON."""
        document = {
            "schema": _SCHEMA,
            "product": self.product,
            "version": self.version,
            "network": self.network,
            "files": dict(self.files),
            "build": dict(self.build),
        }
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Recipe:
        """Read what `write` wrote.

        Raises:
            InputFileError: it is missing or damaged.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["schema"] != _SCHEMA:
                raise InputFileError(
                    f"{path.name} is of schema {document['schema']}, and this Isomorph reads "
                    f"{_SCHEMA}",
                    hint="update isomorph, or export again",
                )
            build = document["build"]
            names = build.get("compute_capabilities", [])
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("compute_capabilities is no list of names")
            if document["network"] not in document["files"]:
                raise ValueError("it has no hash of the network")
            return Recipe(
                product=str(document["product"]),
                version=str(document["version"]),
                network=_plain_name(document["network"]),
                files={_plain_name(k): str(v) for k, v in document["files"].items()},
                build=dict(build),
            )
        except FileNotFoundError:
            raise InputFileError(
                f"{path.name}, which says what the engine was built from, is not beside it",
                hint="copy the engine with the files beside it, or export again",
            ) from None
        except (
            *(OSError, ValueError, KeyError, TypeError, AttributeError),
            RecursionError,
        ) as error:
            raise InputFileError(f"{path} is damaged: {error}", hint="export again") from error

    def demand_unchanged(self, folder: Path) -> None:
        """Every file must be there with the bytes that it had when the engine was built.

        Raises:
            InputFileError: one is missing, or is of another export.
        """
        for name, digest in self.files.items():
            path = folder / name
            if not path.is_file():
                raise InputFileError(
                    f"{name}, which the engine was built with, is not beside it",
                    hint="copy the engine with the files beside it, or export again",
                )
            if sha256_of(path) != digest:
                raise InputFileError(
                    f"{name} is not the file that the engine was built with: it was changed, or "
                    "is of another export",
                    hint="export again",
                )


def _plain_name(name: Any) -> str:
    """A file's name without a folder: a recipe must not lead elsewhere."""
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError(f"{name!r} is no file name")
    return name
