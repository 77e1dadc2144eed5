"""SHA-256 of files and of directories, as manifests record them."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

__all__ = ["sha256_of"]


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file, or of a directory's sorted relative paths, sizes and hashes."""
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            name = file.relative_to(path).as_posix()
            digest.update(f"{name}\0{file.stat().st_size}\0{sha256_of(file)}\n".encode())
        return digest.hexdigest()
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return hashlib.sha256().hexdigest()
        # One call over the mapped file leaves Python's lock once, for as long as it takes.
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return hashlib.sha256(mapped).hexdigest()
