"""The errors for pickles that name classes: which stand in the way, and what to give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputFileError
from .inspection import Inspection

__all__ = ["as_spec", "needs_allow", "refused", "some"]


def refused(source: Path, dangerous: list[str]) -> InputFileError:
    """The error for a pickle that would run code."""
    return InputFileError(
        f"{source} is refused: unpickling it would call {some(dangerous)}, which can run code. "
        "Nothing was executed",
        hint="get the weights as a state_dict or .safetensors; only if you trust whoever made the "
        "file, --trust loads it without any check",
    )


def needs_allow(source: Path, contents: Inspection, unknown: list[str]) -> InputFileError:
    """The error for a pickled module of classes that are neither allowed nor in a library."""
    missing = [name for name in unknown if not _importable(name)]
    root = contents.root_class
    if missing:
        return InputFileError(
            f"{source} is a pickled {root}, made of classes that are not importable here: "
            f"{some(missing)}",
            hint=_name_the_code(root, unknown, missing),
        )
    flags = " ".join(f"--allow {name}" for name in unknown)
    factory = as_spec(root) if root in unknown else "path/to/file.py:callable"
    return InputFileError(
        f"{source} is a pickled {root}; its classes {some(unknown)} are not allowed by default",
        hint=f"allow them, which imports their modules: {flags}\n"
        f"or build the module yourself and take only the weights: --model {factory}",
    )


def _name_the_code(root: str | None, unknown: list[str], missing: list[str]) -> str:
    """What to give where a pickled module's classes cannot be imported.

    Classes of `__main__` are never importable: only the script that saved them has them.
    """
    name = root.rpartition(".")[2] if root is not None and root in missing else "callable"
    where = f"--model path/to/file.py:{name}, the file that defines it"
    if any(one.startswith("__main__.") for one in unknown):
        others = "".join(f" --allow {one}" for one in unknown if not one.startswith("__main__."))
        return f"give {where}" + (f", and{others}" if others else "")
    return (
        f"give {where} (or package.module:{name}); or run where it can be imported "
        f"(PYTHONPATH) with {' '.join(f'--allow {one}' for one in unknown)}"
    )


def as_spec(name: str | None) -> str:
    """`package.module.Class` as `--model` takes it."""
    module, _, leaf = (name or "package.module.Class").rpartition(".")
    return f"{module}:{leaf}"


def _importable(name: str) -> bool:
    """Whether the class's module can be found, without importing it."""
    import importlib.util

    module = name.rpartition(".")[0]
    if module == "__main__":
        return False
    try:
        top = module.partition(".")[0]
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def some(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
