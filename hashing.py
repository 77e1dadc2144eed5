"""SHA-256 of files and of directories, as manifests record them."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["sha256_of"]

_CHUNK = 1 << 20


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file, or of a directory's sorted relative paths, sizes and hashes."""
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            name = file.relative_to(path).as_posix()
            digest.update(f"{name}\0{file.stat().st_size}\0{sha256_of(file)}\n".encode())
        return digest.hexdigest()
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
