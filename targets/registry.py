"""Which deployment formats there are: built-ins, and entry points of other packages.

A package adds a format by an entry point in group `isomorph.targets` whose
value names an object (or class) that follows `targets.base.Target`. Nothing is
imported until a format is asked for by name.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from ..errors import MissingRequirementError, UsageError
from .base import Capability, Target

__all__ = [
    "GROUP",
    "capabilities",
    "deferred",
    "get",
    "loadable",
    "names",
    "of_suffix",
    "suffixes",
]

GROUP = "isomorph.targets"

# What an object must have to be a `Target`.
_METHODS = ("files", "capability", "check", "convert", "open")
_ATTRIBUTES = ("name", "suffix", "extra", "options_type", "precisions")

_DEFERRED = ":deferred"

# Module (relative to this package) and attribute of each target that comes with Isomorph.
_BUILT_IN = {
    "onnx": ".onnx.target:OnnxTarget",
    "openvino": ".openvino.target:OpenVinoTarget",
    "coreml": ".coreml.target:CoreMlTarget",
    "litert": ".litert.target:LiteRtTarget",
    "torchscript": ".torchscript.target:TorchScriptTarget",
    "aotinductor": ".aotinductor.target:AotInductorTarget",
    "executorch": ".executorch.target:ExecuTorchTarget",
    "tensorrt": ".tensorrt.target:TensorRtTarget",
    "tensorrt-rtx": ".tensorrt.rtx:TensorRtRtxTarget",
}


def names() -> tuple[str, ...]:
    """Names of all formats, built-ins first; nothing is imported."""
    return (*_BUILT_IN, *sorted(set(_installed()) - set(_BUILT_IN)))


def get(name: str) -> Target:
    """The target called `name`; `NAME:deferred` is what `deferred(NAME)` gives.

    Raises:
        UsageError: there is no such format.
        MissingRequirementError: the package that brings it does not import, or what it brings
            is no target.
    """
    if name.endswith(_DEFERRED):
        return deferred(name.removesuffix(_DEFERRED))
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        target: Target = getattr(importlib.import_module(module, __package__), attribute)()
        return target
    if (point := _installed().get(name)) is not None:
        return _load(name, point)
    raise _unknown(name)


def deferred(name: str) -> Target:
    """What packs a format that is built on the device: a target too.

    Raises:
        UsageError: the format is not built on the device.
    """
    make = getattr(get(name), "deferred", None)
    if make is None:
        raise UsageError(
            f"the format {name} is not built on the device: there is nothing to defer",
        )
    target: Target = make()
    return target


def suffixes() -> list[str]:
    """Suffixes of all artifacts, the longest first: `.rtx.engine` before `.engine`."""
    return sorted((target.suffix for target in _variants()), key=len, reverse=True)


def of_suffix(path_name: str) -> Target | None:
    """The target whose artifacts end as `path_name` does; of several the longest suffix counts."""
    fitting = [target for target in _variants() if path_name.endswith(target.suffix)]
    return max(fitting, key=lambda target: len(target.suffix), default=None)


def _variants() -> Iterator[Target]:
    for target in loadable():
        yield target
        if hasattr(target, "deferred"):
            yield target.deferred()


def loadable() -> Iterator[Target]:
    """Every target that loads, built-ins first; those of broken packages are passed over."""
    for name in names():
        try:
            yield get(name)
        except MissingRequirementError:
            continue


def capabilities() -> dict[str, Capability]:
    """What this machine can do with each format; one whose package is broken says so."""
    found = {name: _capability(name) for name in names()}
    for point in _points():
        kept = _installed().get(point.name)
        if point.name in _BUILT_IN or (kept is not None and kept != point):
            whose = "a built-in format" if kept is None or point.name in _BUILT_IN else _owner(kept)
            found[f"{point.name} ({_owner(point)})"] = _unusable(
                f"the name {point.name} is that of {whose}: {_owner(point)} must choose another"
            )
    return found


def _capability(name: str) -> Capability:
    try:
        return get(name).capability()
    except MissingRequirementError as error:
        return _unusable(error.message)
    except Exception as error:  # noqa: BLE001 - code of another package may raise anything
        return _unusable(f"the format {name} does not tell its capability: {_reason(error)}")


def _unusable(why: str) -> Capability:
    return Capability(False, None, False, False, (), why)


def _load(name: str, point: EntryPoint) -> Target:
    """The target of another package.

    Raises:
        MissingRequirementError: it does not import, or is no target.
    """
    hint = "reinstall or update that package"
    try:
        found = point.load()
        target: Target = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:
        raise MissingRequirementError(
            f"the format {name} of {_owner(point)} does not load: {_reason(error)}", hint=hint
        ) from error
    lacking = [
        member
        for member in (*_METHODS, *_ATTRIBUTES)
        if not hasattr(target, member)
        or (member in _METHODS and not callable(getattr(target, member)))
    ]
    if lacking:
        raise MissingRequirementError(
            f"the format {name} of {_owner(point)} is no target: {point.value} lacks "
            f"{', '.join(lacking)}",
            hint=hint,
        )
    return target


def _points() -> list[EntryPoint]:
    """Entry points of the group, in an order that does not depend on the import path."""
    return sorted(entry_points(group=GROUP), key=lambda point: (point.name, _owner(point)))


def _installed() -> dict[str, EntryPoint]:
    """One entry point for each name: the first, where packages compete."""
    return {point.name: point for point in reversed(_points())}


def _reason(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, ImportError) else f"{type(error).__name__}: {text}"


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name.lower(), names(), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"formats: {', '.join(names())}"
    return UsageError(f"there is no format called {name}", hint=hint)
