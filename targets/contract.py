"""What a target promised, held against what it did: whose fault a failure is."""

from __future__ import annotations

from pathlib import Path

from ..bugs import as_bug
from ..errors import IsomorphError
from .base import Artifact, Target

__all__ = ["demand_contract", "told_of"]


def told_of(error: BaseException, target: str) -> IsomorphError:
    """`error` if it is one of ours; anything else that a target raises is a bug of that target."""
    if isinstance(error, IsomorphError):
        return error
    return as_bug(error, f"the target {target}")


def demand_contract(target: Target, artifact: object, directory: Path, stem: str) -> None:
    """What `convert` returned must be files in `directory` that `files(stem)` names.

    Whatever is returned is moved to its place afterwards: it must not be somebody's.

    Raises:
        TypeError, ValueError: it is not; a bug of the target.
    """
    if not isinstance(artifact, Artifact):
        raise TypeError(f"convert returned {type(artifact).__name__}, not an Artifact")
    allowed = {directory / name for name in target.files(stem)}
    for path in (artifact.path, *artifact.files):
        if path not in allowed:
            raise ValueError(f"convert returned {path}, which files() does not name")
        if not path.exists():
            raise ValueError(f"convert returned {path.name}, and did not write it")
    if artifact.path not in artifact.files:
        raise ValueError("convert returned an Artifact whose files lack its path")
