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


def run_file(path: Path, spec: Spec) -> tuple[types.ModuleType, tuple[str, ...]]:
    """The file as a module that has what `spec` names, and notes on how that was done.

    A file that trains at its top level, or whose imports fail, is run in part: see
    `script_slice`. A file of a package that imports relatively is imported as its
    package's module.

    Raises:
        UsageError: it is not Python, or running it raised.
    """
    source = path.read_bytes()
    wanted = spec.name.partition(".")[0]
    try:
        part = needed_by(source.decode("utf-8-sig"), wanted)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"--model {spec.text}: {path.name} is not valid Python: {error}",
            hint="name a .py file that imports",
        ) from error
    if part.partial:
        return _execute(path, source, part, spec), (_note(path, spec, part, "trains when run"),)
    try:
        return _run_whole(path, source, part, spec), ()
    except UsageError as failure:
        if not isinstance(failure.__cause__, ImportError):
            raise
        part = needed_by(source.decode("utf-8-sig"), wanted, always=True)
        try:
            module = _execute(path, source, part, spec)
        except UsageError:
            raise failure from failure.__cause__
        return module, (_note(path, spec, part, f"cannot be run ({failure.__cause__})"),)


def _note(path: Path, spec: Spec, part: ScriptSlice, why: str) -> str:
    lines = ", ".join(map(str, part.skipped[:6])) + (", ..." if len(part.skipped) > 6 else "")
    return (
        f"{path.name} {why} as a whole: only the definitions that {spec.name} needs were executed"
        + (f" (skipped lines {lines})" if lines else "")
    )


def _run_whole(path: Path, source: bytes, part: ScriptSlice, spec: Spec) -> types.ModuleType:
    package = _package_module(path)
    if package is None or not _imports_relatively(part.tree):
        return _execute(path, source, part, spec)
    root, name = package
    with importable(root), _arguments_of(path):
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise _script_failed(path, part, spec, error) from error


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


def _execute(path: Path, source: bytes, part: ScriptSlice, spec: Spec) -> types.ModuleType:
    """Run the file, or its slice, as a module of a name nobody else uses."""
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
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _script_failed(path, part, spec, error) from error
    return module


def _script_failed(path: Path, part: ScriptSlice, spec: Spec, error: BaseException) -> UsageError:
    shown = f"{type(error).__name__}: {error}{raised_at(error)}"
    if part.partial:
        return UsageError(
            f"--model {spec.text}: {path.name} trains when imported, so only the definitions that "
            f"{spec.name} needs were executed, and that failed: {shown}",
            hint="move the training under `if __name__ == '__main__':`, or the model into a file "
            "of its own",
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
