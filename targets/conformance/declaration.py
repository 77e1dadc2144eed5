"""What a target says of itself: name, files, options, capability. Nothing is converted."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

from ...errors import IsomorphError
from ..base import Capability
from ..options import build_options, describe_options
from .subject import Subject, died, fail

__all__ = ["DeclarationChecks"]

_PRECISIONS = ("fp32", "fp16", "bf16")
_METHODS = ("files", "capability", "check", "convert", "open")
_ATTRIBUTES = ("name", "suffix", "extra", "options_type", "precisions")


class DeclarationChecks:
    """Checks of a target's attributes."""

    def test_target_has_every_member(self, subject: Subject) -> None:
        """The attributes and methods of `targets.base.Target`."""
        lacking = [
            name
            for name in (*_ATTRIBUTES, *_METHODS)
            if not hasattr(subject.target, name)
            or (name in _METHODS and not callable(getattr(subject.target, name)))
        ]
        if lacking:
            fail(f"the target lacks {', '.join(lacking)}: see isomorph.targets.base.Target")

    def test_name_suffix_and_precisions(self, subject: Subject) -> None:
        """They are what the command line, file names and manifests can use."""
        target = subject.target
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", str(target.name)):
            fail(f"name is {target.name!r}: use lower-case letters, digits, - and _")
        if isinstance(subject.declared, str) and target.name != subject.declared:
            fail(f"the entry point is called {subject.declared!r}, but name is {target.name!r}")
        if not re.fullmatch(r"(\.[A-Za-z0-9_]+)+", str(target.suffix)):
            fail(f'suffix is {target.suffix!r}: it is the end of a file name, such as ".onnx"')
        if not isinstance(target.extra, str):
            fail(f"extra is {target.extra!r}: it is a string, empty where no pip extra is needed")
        held = target.precisions
        if not isinstance(held, tuple) or not held or held[0] != "fp32":
            fail(f'precisions is {held!r}: it is a tuple that begins with "fp32"')
        if unknown := [p for p in held if p not in _PRECISIONS]:
            fail(f"precisions names {', '.join(map(str, unknown))}; known: {_PRECISIONS}")

    def test_files_begin_with_the_artifact(self, subject: Subject) -> None:
        """`files(stem)` are plain names, the one that a user loads first."""
        names = subject.target.files("a.b")
        if not isinstance(names, tuple) or not names or names[0] != f"a.b{subject.target.suffix}":
            fail(
                f"files('a.b') is {names!r}: it is a tuple that begins with stem + suffix, "
                f"'a.b{subject.target.suffix}'"
            )
        if odd := [n for n in names if "/" in n or "\\" in n or not n.startswith("a.b")]:
            fail(f"files('a.b') holds {odd}: every name begins with the stem and has no folder")

    def test_options_are_a_documented_frozen_dataclass(self, subject: Subject) -> None:
        """The fields are the keys of `--set`: typed, with a default, told in the docstring."""
        kind = subject.target.options_type
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            fail(f"options_type is {kind!r}: make it a dataclass, its fields are the --set keys")
        parameters: Any = kind.__dict__.get("__dataclass_params__")
        if not parameters.frozen:
            fail(f"{kind.__name__} can be changed: write @dataclass(frozen=True)")
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if field.default is dataclasses.MISSING:
                fail(f"{kind.__name__}.{field.name} has no default: --set must be optional")
            if f"{field.name}:" not in (kind.__doc__ or ""):
                fail(
                    f"{kind.__name__}.{field.name} is not explained: add a line "
                    f"'{field.name}: what it does' to the class's docstring"
                )
            try:
                built = build_options(kind, {field.name: _text(field.default)})
            except IsomorphError as error:
                fail(
                    f"--set {field.name}={_text(field.default)}, its own default, is refused: "
                    f"{error.message}. Use bool, int, float, str, Literal, or one of them | None, "
                    f"not {hints[field.name]!r}"
                )
            if getattr(built, field.name) != field.default:
                fail(f"--set {field.name}={_text(field.default)} does not give its default back")
        describe_options(kind)

    def test_capability_is_consistent(self, subject: Subject) -> None:
        """Types are right, and what lacks comes with the command that brings it."""
        found = subject.capability
        if not isinstance(found, Capability):
            fail(f"capability() returns {type(found).__name__}: return a Capability")
        for name in ("installed", "builds", "runs"):
            if not isinstance(getattr(found, name), bool):
                fail(f"capability().{name} is {getattr(found, name)!r}: it is True or False")
        if not (found.version is None or isinstance(found.version, str)):
            fail(f"capability().version is {found.version!r}: it is a string or None")
        devices = found.devices
        if not isinstance(devices, tuple) or not all(isinstance(d, str) for d in devices):
            fail(f"capability().devices is {devices!r}: it is a tuple of names such as ('cpu',)")
        if found.runs and subject.device not in devices:
            fail(
                f"capability() says that it runs here, but devices {devices} lack "
                f"{subject.device!r}, where this class runs it: name the devices, or set "
                f"`device` in the test class"
            )
        if devices and not found.runs:
            fail(f"capability().devices is {devices}, but runs is False")
        if not (found.builds and found.runs) and not found.remedy:
            fail("capability().remedy is empty though something lacks: give the exact command")

    def test_capability_imports_nothing(self, subject: Subject) -> None:
        """`isomorph targets` asks every target: it must not load torch or a runtime."""
        reports = subject.elsewhere({"do": "capability"})
        if death := died(reports):
            fail(f"capability() in a fresh process: {death}")
        if imported := reports[0]["imported"]:
            fail(
                f"capability() (or the module that defines the target) imports "
                f"{', '.join(imported)}: look packages up with importlib.util.find_spec and "
                f"importlib.metadata, and import them inside convert() and open()"
            )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
