"""Target options from `--set` texts or Python values, checked against the target's dataclass."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from . import registry

__all__ = ["build_options", "describe_options", "split_settings"]


def split_settings(settings: Sequence[str], formats: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`[FORMAT.]KEY=VALUE` texts by format; the prefix may be left out with one format.

    Raises:
        UsageError: no `=`, or no prefix where several formats are asked for.
    """
    options: dict[str, dict[str, Any]] = {name: {} for name in formats}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {text!r} is not of the form [FORMAT.]KEY=VALUE")
        head, dot, rest = key.partition(".")
        if dot and head in options:
            options[head][rest] = value
        elif dot:
            raise UsageError(
                f"--set {text!r} is for the format {head!r}, which is not being exported",
                hint=f"formats in this command: {', '.join(formats)}",
            )
        elif len(formats) == 1:
            options[formats[0]][key] = value
        else:
            raise UsageError(
                f"--set {text!r} does not say which format it is for",
                hint=f"write {_owner(key, formats)}.{text}",
            )
    return options


def _owner(key: str, formats: Sequence[str]) -> str:
    """The first format that has an option of that name."""
    fields = {
        name: {field.name for field in dataclasses.fields(registry.get(name).options_type)}
        for name in formats
    }
    return next((name for name in formats if key in fields[name]), formats[0])


def build_options(options_type: type, values: Mapping[str, Any]) -> Any:
    """An instance of the target's options; texts are converted to the fields' types.

    Raises:
        UsageError: an unknown key (listing the valid ones) or a value of the wrong type.
    """
    fields = {field.name: field for field in dataclasses.fields(options_type)}
    hints = typing.get_type_hints(options_type)
    converted = {}
    for key, value in values.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            described = describe_options(options_type)
            raise UsageError(
                f"unknown option {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"valid: {described}" if described else "this format has no options",
            )
        converted[key] = _convert(key, value, hints[key])
    try:
        return options_type(**converted)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def describe_options(options_type: type) -> str:
    """`opset (int, 18), optimize (true|false, true)`."""
    hints = typing.get_type_hints(options_type)
    return ", ".join(
        f"{field.name} ({_type_text(hints[field.name])}, {_value_text(field.default)})"
        for field in dataclasses.fields(options_type)
    )


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _type_text(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return "|".join(map(str, typing.get_args(hint)))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(
            "none" if a is type(None) else _type_text(a) for a in typing.get_args(hint)
        )
    return "true|false" if hint is bool else getattr(hint, "__name__", str(hint))


def _convert(key: str, value: Any, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        members = typing.get_args(hint)
        if type(None) in members and (value is None or str(value).lower() == "none"):
            return None
        return _convert(key, value, next(m for m in members if m is not type(None)))
    if origin is typing.Literal:
        if value in typing.get_args(hint):
            return value
    elif hint is bool:
        truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() in truth:
            return truth[str(value).lower()]
    elif hint in (int, float) and not isinstance(value, bool):
        try:
            return hint(value)
        except (TypeError, ValueError):
            pass
    elif hint is str:
        return str(value)
    raise UsageError(f"option {key} takes {_type_text(hint)}, not {value!r}")
