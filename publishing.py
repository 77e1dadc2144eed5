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

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["Staging", "destination_errors"]

_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space, or write elsewhere with -o"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write elsewhere with -o"),
    errno.EROFS: ("the file system is read-only", "write elsewhere with -o"),
    errno.EACCES: ("permission is denied", "change the folder's permissions, or use -o"),
    errno.EPERM: ("permission is denied", "change the folder's permissions, or use -o"),
    errno.ENOTDIR: ("a part of the path is a file", "choose another path with -o"),
    errno.ENOENT: ("its folder does not exist and cannot be made", "choose another folder with -o"),
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
        self._given = destination
        self.destination = destination.absolute()  # the model's code may change the folder
        self._parent = self.destination.parent
        self._made_parents: list[Path] = []
        self._owner = -1
        self.directory = self.destination  # set on entry

    def __enter__(self) -> Staging:
        try:
            with destination_errors(self.destination):
                self._make_parents()
                self.recover(self.destination)
                with _only_one(self._parent):
                    self.directory = Path(
                        tempfile.mkdtemp(prefix=_prefix(self.destination), dir=self._parent)
                    )
                    self._owner = _claim(self.directory)
        except BaseException:
            self._clear(failed=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear(failed=error is not None)

    def _clear(self, *, failed: bool) -> None:
        if self.directory != self.destination:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._owner >= 0:
            os.close(self._owner)
        if failed:
            for folder in self._made_parents:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _make_parents(self) -> None:
        folder = self._parent
        while not folder.exists():
            self._made_parents.append(folder)
            folder = folder.parent
        self._parent.mkdir(parents=True, exist_ok=True)

    def commit(self, staged: Sequence[Path], replaced: Sequence[Path] = ()) -> list[Path]:
        """Move `staged` files (or folders) beside the destination, in order; the manifest last.

        `replaced` are further paths of the old artifact that the new one does
        not have. On failure everything is as it was.

        Returns:
            The final paths, as the destination was given.
        """
        finals = [self._parent / path.name for path in staged]
        with destination_errors(self.destination), _only_one(self._parent):
            gone = [self._parent / path.name for path in replaced]
            old = [path for path in dict.fromkeys((*reversed(finals), *gone)) if path.exists()]
            journal = {"new": [p.name for p in finals], "old": [p.name for p in old]}
            aside = self.directory / _ASIDE
            aside.mkdir()
            draft = self.directory / f"{_JOURNAL}.draft"
            draft.write_text(json.dumps(journal))
            draft.replace(self.directory / _JOURNAL)
            try:
                for path in old:
                    path.replace(aside / path.name)
                for path, final in zip(staged, finals, strict=True):
                    path.replace(final)
            except BaseException:
                _restore(self.directory, self._parent)
                raise
            (self.directory / _JOURNAL).unlink()
        return [self._given.with_name(path.name) for path in finals]

    @staticmethod
    def recover(destination: Path) -> None:
        """Undo what processes that no longer run left half done for this destination."""
        destination = destination.absolute()
        folders = list(destination.parent.glob(f"{_glob(_prefix(destination))}*"))
        if not folders:
            return
        with _only_one(destination.parent):
            for folder in folders:
                if not folder.is_dir() or _owner_lives(folder):
                    continue
                if (folder / _JOURNAL).exists():
                    _restore(folder, destination.parent)
                shutil.rmtree(folder, ignore_errors=True)


_ASIDE, _JOURNAL, _OWNER = "aside", "journal", "owner"


def _prefix(destination: Path) -> str:
    return f".{destination.name}.isomorph-"


def _glob(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """One process at a time moves files in `folder`; the lock goes with the process."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _claim(folder: Path) -> int:
    """Mark the folder as this process's for as long as the returned handle is open."""
    handle = os.open(folder / _OWNER, os.O_CREAT | os.O_RDWR, 0o644)
    os.write(handle, str(os.getpid()).encode())
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _owner_lives(folder: Path) -> bool:
    """Whether the process that made the folder still runs.

    A lock tells, since process numbers are reused and differ between containers;
    in doubt (another user's folder, a file system without locks) it lives.
    """
    try:
        handle = os.open(folder / _OWNER, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        if fcntl is None:
            return _runs(int(os.read(handle, 32) or b"0"))
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, ValueError):
        return True
    finally:
        os.close(handle)
    return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _restore(folder: Path, parent: Path) -> None:
    """Put back what was moved aside, and take away what had been put in its place.

    A journal that does not read as one was not written by `commit`: then
    nothing is touched but what lies aside.
    """
    try:
        journal = json.loads((folder / _JOURNAL).read_text())
        new, old = ([name for name in journal[key] if _is_plain(name)] for key in ("new", "old"))
    except (ValueError, TypeError, KeyError, RecursionError):
        new, old = [], []
    aside = folder / _ASIDE
    moved = {path.name for path in aside.iterdir()} if aside.is_dir() else set()
    for name in new:
        untouched = name in old and name not in moved
        if not untouched:
            _remove(parent / name)
    for name in moved:
        (aside / name).replace(parent / name)


def _is_plain(name: object) -> bool:
    """A name within the folder: no path that leads elsewhere."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
