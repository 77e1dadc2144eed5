"""Put finished files where the user wants them, all or nothing.

Work happens in a hidden folder beside the destination, so that the last step
is a rename on one file system. The old artifact is moved aside first and comes
back if anything fails; the manifest goes in last. What a killed process left
behind is put right by the next one (`Staging.recover`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from .errors import DestinationError

__all__ = ["Staging", "destination_errors"]

_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space, or write elsewhere with -o"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write elsewhere with -o"),
    errno.EROFS: ("the file system is read-only", "write elsewhere with -o"),
    errno.EACCES: ("permission is denied", "change the folder's permissions, or use -o"),
    errno.EPERM: ("permission is denied", "change the folder's permissions, or use -o"),
    errno.ENOTDIR: ("a part of the path is a file", "choose another path with -o"),
    errno.ENOENT: ("its folder cannot be made", "choose another folder with -o"),
    errno.EEXIST: ("a part of the path is a file", "choose another path with -o"),
    errno.EISDIR: ("it is a directory", "choose a file name with -o"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one with -o"),
    errno.EFBIG: ("the file would be too large for this file system", "write elsewhere with -o"),
}


@contextlib.contextmanager
def destination_errors(destination: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write into a `DestinationError` with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        reason, hint = _REASONS[error.errno]
        raise DestinationError(f"{destination} cannot be written: {reason}", hint=hint) from error


class Staging:
    """A private folder beside `destination`; use as a context manager.

    `directory` takes the files while they are made. Leaving the context removes
    it with all that was not committed.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self._parent = destination.parent
        self._made_parents: list[Path] = []
        self.directory = destination  # set on entry

    def __enter__(self) -> Staging:
        with destination_errors(self.destination):
            self._make_parents()
            self.recover(self.destination)
            self.directory = Path(
                tempfile.mkdtemp(prefix=_prefix(self.destination), dir=self._parent)
            )
            (self.directory / "pid").write_text(str(os.getpid()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        if error is not None:
            for folder in self._made_parents:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _make_parents(self) -> None:
        missing = []
        folder = self._parent
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        self._parent.mkdir(parents=True, exist_ok=True)
        self._made_parents = missing

    def commit(self, staged: Sequence[Path], replaced: Sequence[Path] = ()) -> list[Path]:
        """Move `staged` files (or folders) beside the destination, in order; the manifest last.

        `replaced` are further paths of the old artifact that the new one does
        not have. On failure everything is as it was.

        Returns:
            The final paths.
        """
        finals = [self._parent / path.name for path in staged]
        old = [path for path in dict.fromkeys((*reversed(finals), *replaced)) if path.exists()]
        journal = {"new": [p.name for p in finals], "old": [p.name for p in old]}
        with destination_errors(self.destination):
            aside = self.directory / "aside"
            aside.mkdir()
            (self.directory / "journal").write_text(json.dumps(journal))
            try:
                for path in old:
                    path.replace(aside / path.name)
                for path, final in zip(staged, finals, strict=True):
                    path.replace(final)
            except BaseException:
                _restore(self.directory, self._parent)
                raise
            (self.directory / "journal").unlink()
        return finals

    @staticmethod
    def recover(destination: Path) -> None:
        """Undo what processes that no longer run left half done for this destination."""
        for folder in destination.parent.glob(f"{_glob(_prefix(destination))}*"):
            if not folder.is_dir() or _owner_lives(folder):
                continue
            if (folder / "journal").exists():
                _restore(folder, destination.parent)
            shutil.rmtree(folder, ignore_errors=True)


def _prefix(destination: Path) -> str:
    return f".{destination.name}.isomorph-"


def _glob(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _owner_lives(folder: Path) -> bool:
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _restore(folder: Path, parent: Path) -> None:
    """Put back what was moved aside, and take away what had been put in its place."""
    journal = json.loads((folder / "journal").read_text())
    aside = folder / "aside"
    moved = {path.name for path in aside.iterdir()} if aside.exists() else set()
    for name in journal["new"]:
        untouched = name in journal["old"] and name not in moved
        if not untouched:
            _remove(parent / name)
    for name in moved:
        (aside / name).replace(parent / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
