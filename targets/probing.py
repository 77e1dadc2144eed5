"""Whether a folder can be written, for libraries that hide the operating system's answer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["demand_writable"]


def demand_writable(path: Path) -> None:
    """Write and remove a file beside `path`.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    probe = path.with_name(f".{path.name}.probe")
    with contextlib.suppress(FileNotFoundError):
        try:
            probe.write_bytes(b"\0" * 65536)
            with probe.open("rb") as stream:
                os.fsync(stream.fileno())
        finally:
            probe.unlink(missing_ok=True)
