"""Which deployment formats there are: built-ins, and entry points of other packages.

A package adds a format by an entry point in group `isomorph.targets` whose
value names an object (or class) that follows `targets.base.Target`. Nothing is
imported until a format is asked for by name.
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import EntryPoint, entry_points

from ..errors import MissingRequirementError, UsageError
from .base import Capability, Target

__all__ = ["GROUP", "capabilities", "get", "names"]

GROUP = "isomorph.targets"

# Module (relative to this package) and attribute of each target that comes with Isomorph.
_BUILT_IN = {
    "onnx": ".onnx.target:OnnxTarget",
    "litert": ".litert.target:LiteRtTarget",
    "torchscript": ".torchscript.target:TorchScriptTarget",
    "executorch": ".executorch.target:ExecuTorchTarget",
}


def names() -> tuple[str, ...]:
    """Names of all formats, built-ins first; nothing is imported."""
    return (*_BUILT_IN, *sorted(set(_installed()) - set(_BUILT_IN)))


def get(name: str) -> Target:
    """The target called `name`.

    Raises:
        UsageError: there is no such format.
        MissingRequirementError: the package that brings it does not import.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        found = getattr(importlib.import_module(module, __package__), attribute)
    elif (point := _installed().get(name)) is not None:
        try:
            found = point.load()
        except (ImportError, AttributeError) as error:
            raise MissingRequirementError(
                f"the format {name} of {_owner(point)} does not load: {error}",
                hint="reinstall or update that package",
            ) from error
    else:
        raise _unknown(name)
    target: Target = found() if isinstance(found, type) else found
    return target


def capabilities() -> dict[str, Capability]:
    """What this machine can do with each format; one whose package is broken says so."""
    found = {}
    for name in names():
        try:
            found[name] = get(name).capability()
        except MissingRequirementError as error:
            found[name] = Capability(False, None, False, False, (), error.message)
    return found


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name.lower(), names(), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"formats: {', '.join(names())}"
    return UsageError(f"there is no format called {name}", hint=hint)
