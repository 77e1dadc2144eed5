"""What is in a checkpoint file, told without torch and without executing anything.

Pickles are read opcode by opcode over inert stand-ins (`opcodes`), zip archives
by their table of contents, safetensors by their header. Tensor data is never
read, so a file of gigabytes takes no longer than a small one.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputFileError
from .allowlist import Standing, canonical, standing
from .opcodes import BoundedReader, Call, Global, PickleError, read_pickle
from .sniffing import FileKind, sniff

__all__ = ["Inspection", "StoredTensor", "inspect"]

_PICKLE_LIMIT = 256 << 20
_WALK_LIMIT = 2_000_000


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in the file: its dotted name, torch dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found.

    `globals` are the names that unpickling would import, each with its standing
    (`allowlist.standing`); `root_class` is the class of a pickled module;
    `entries` are the top-level keys of a dict with what each holds.
    """

    path: str
    format: str
    looks_like: str
    bytes: int
    tensors: tuple[StoredTensor, ...] = ()
    globals: tuple[tuple[str, Standing], ...] = ()
    root_class: str | None = None
    entries: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    suggestion: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "looks_like": self.looks_like,
            "bytes": self.bytes,
            "tensors": [
                {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in self.tensors
            ],
            "globals": [{"name": name, "standing": rank} for name, rank in self.globals],
            "root_class": self.root_class,
            "entries": [{"key": key, "holds": holds} for key, holds in self.entries],
            "notes": list(self.notes),
            "suggestion": self.suggestion,
        }


def inspect(path: str | Path) -> Inspection:
    """Read what a file holds.

    Raises:
        InputFileError: it is missing, empty, unreadable, or damaged.
    """
    source = Path(path)
    found = sniff(source)
    try:
        if found.kind == "torch_zip":
            return _of_pickle(source, found, [_zip_pickle(source, found)])
        if found.kind == "torch_legacy":
            return _of_pickle(source, found, _legacy_pickles(source, found.size))
    except (PickleError, zipfile.BadZipFile, OSError, struct.error, EOFError) as error:
        raise InputFileError(
            f"{source} looks like {found.looks_like} but is damaged: {error}",
            hint="the save or download was interrupted; repeat it",
        ) from error
    return Inspection(str(source), found.kind, found.looks_like, found.size)


def _zip_pickle(source: Path, found: FileKind) -> tuple[Any, list[Global]]:
    with zipfile.ZipFile(source) as archive, archive.open(f"{found.root}/data.pkl") as member:
        return read_pickle(BoundedReader(member, _PICKLE_LIMIT))


def _legacy_pickles(source: Path, size: int) -> list[tuple[Any, list[Global]]]:
    """The five pickles before the tensor data: magic, version, system, object, keys."""
    with source.open("rb") as file:
        reader = BoundedReader(file, min(size, _PICKLE_LIMIT))
        return [read_pickle(reader) for _ in range(5)]


def _of_pickle(
    source: Path, found: FileKind, pickles: list[tuple[Any, list[Global]]]
) -> Inspection:
    names: dict[str, Standing] = {}
    for _, named in pickles:
        for one in named:
            names[canonical(one.module, one.name)] = standing(one.module, one.name)
    root = pickles[3 if len(pickles) == 5 else 0][0]
    root_class = None
    if isinstance(root, Call) and isinstance(root.callee, Global):
        name = canonical(root.callee.module, root.callee.name)
        root_class = None if names.get(name) == "safe" else name
    return Inspection(
        str(source),
        found.kind,
        found.looks_like,
        found.size,
        globals=tuple(names.items()),
        root_class=root_class,
    )
