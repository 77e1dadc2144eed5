"""Which packages are there, looked up without importing any."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ..errors import MissingRequirementError

__all__ = ["found_versions", "importable", "installed_version", "require"]


def importable(module: str) -> bool:
    """Whether a module could be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or broken
        return False


def installed_version(*packages: str) -> str | None:
    """Version of the first of these distributions that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def found_versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those distributions that are installed, by name."""
    return {p: found for p in packages if (found := installed_version(p)) is not None}


def require(doing: str, modules: Iterable[str], remedy: str) -> None:
    """Demand modules for `doing` something ("writing ONNX"); `remedy` is a command.

    Raises:
        MissingRequirementError: one cannot be imported.
    """
    missing = [module for module in modules if not importable(module)]
    if missing:
        raise MissingRequirementError(f"{doing} needs {', '.join(missing)}", hint=f"run: {remedy}")
