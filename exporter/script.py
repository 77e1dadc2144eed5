"""Run the user's file that defines a model, or as much of it as the model needs."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError
from .script_slice import ScriptSlice, needed_by
from .spec import Spec, raised_at

__all__ = ["importable", "run_file"]


_TRAINS = "trains when imported"
_GUARD_TRAINING = (
    "move the training under `if __name__ == '__main__':`, or the model into a file of its own"
)


def run_file(path: Path, spec: Spec) -> tuple[types.ModuleType, tuple[str, ...]]:
    """The file as a module that has what `spec` names, and notes on how that was done.

    A file that trains at its top level, or whose imports fail, is run in part: see
    `script_slice`. A file of a package that imports relatively is imported as its
    package's module.

    Raises:
        UsageError: it is not Python, or running it raised.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"--model {spec.text}: {path.name} cannot be read: {error.strerror}",
            hint="check its permissions",
        ) from error
    wanted = spec.name.partition(".")[0]
    try:
        part = needed_by(source.decode("utf-8-sig"), wanted)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        shown = str(error) or type(error).__name__
        raise UsageError(
            f"--model {spec.text}: {path.name} is not valid Python: {shown}",
            hint="name a .py file that imports",
        ) from error
    if part.partial:
        module = _execute(path, source, part, spec, _TRAINS)
        return module, (_note(path, spec, "not its training"),)
    try:
        return _run_whole(path, source, part, spec), ()
    except UsageError as failure:
        if not isinstance(failure.__cause__, ImportError):
            raise
        return _without_imports(path, source, spec, failure)


def _without_imports(
    path: Path, source: bytes, spec: Spec, failure: UsageError
) -> tuple[types.ModuleType, tuple[str, ...]]:
    """What the wanted name needs of a file whose imports fail, or why that fails too."""
    wanted = spec.name.partition(".")[0]
    part = needed_by(source.decode("utf-8-sig"), wanted, always=True)
    why = str(failure.__cause__)
    try:
        module = _execute(path, source, part, spec, f"cannot be run whole ({why})")
    except UsageError as second:
        if isinstance(second.__cause__, ImportError):
            raise failure from failure.__cause__
        raise
    return module, (_note(path, spec, f"not all of it: {why}"),)


def _note(path: Path, spec: Spec, left_out: str) -> str:
    return f"only the parts of {path.name} that {spec.name} needs were run, {left_out}"


def _run_whole(path: Path, source: bytes, part: ScriptSlice, spec: Spec) -> types.ModuleType:
    package = _package_module(path)
    if package is None or not _imports_relatively(part.tree):
        return _execute(path, source, part, spec)
    root, name = package
    with importable(root), _arguments_of(path):
        try:
            return importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _script_failed(path, spec, error) from error


def _package_module(path: Path) -> tuple[Path, str] | None:
    """(folder of the top-level package, dotted module name) of a file inside a package."""
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return (folder, ".".join(parts)) if len(parts) > 1 else None


def _imports_relatively(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _execute(
    path: Path, source: bytes, part: ScriptSlice, spec: Spec, why: str = ""
) -> types.ModuleType:
    """Run the file, or its slice, as a module of a name nobody else uses.

    `why` says, for the error, why only a slice is run.
    """
    digest = hashlib.sha256(str(path).encode() + source).hexdigest()[:12]
    stem = re.sub(r"\W", "_", path.stem)
    name = f"_isomorph_{stem}_{digest}"
    if name in sys.modules and hasattr(sys.modules[name], spec.name.partition(".")[0]):
        return sys.modules[name]
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with importable(Path.cwd()), _arguments_of(path):
            exec(compile(part.tree, str(path), "exec"), module.__dict__)
    except UsageError:
        raise
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as error:
        del sys.modules[name]
        raise _script_failed(path, spec, error, why) from error
    return module


def _script_failed(path: Path, spec: Spec, error: BaseException, why: str = "") -> UsageError:
    shown = f"{type(error).__name__}: {error}{raised_at(error)}"
    if why:
        return UsageError(
            f"--model {spec.text}: {path.name} {why}, so only the parts that {spec.name} needs "
            f"were run, and that failed: {shown}",
            hint=_GUARD_TRAINING if why == _TRAINS else "move the model into a file of its own",
        )
    if isinstance(error, ModuleNotFoundError):
        return UsageError(
            f"--model {spec.text}: running {path.name} raised {shown}",
            hint=f"install {error.name}, or run where it can be imported (PYTHONPATH)",
        )
    return UsageError(
        f"--model {spec.text}: running {path.name} raised {shown}",
        hint="the file must run without arguments; put scripts under `if __name__ == '__main__':`",
    )


@contextlib.contextmanager
def _arguments_of(path: Path) -> Iterator[None]:
    """A script that reads its command line must not see Isomorph's."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The current directory on sys.path, as `python -m` has it; it stays for late imports."""
    if str(folder) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(folder))
    yield
