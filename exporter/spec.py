"""The words of an architecture specification: where to look, what to take, its arguments.

Arguments are literals read with `ast.literal_eval`; nothing is evaluated.
"""

from __future__ import annotations

import ast
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError

__all__ = ["Spec", "parse", "raised_at"]

_FORMS = (
    "write it as package.module:callable, path/to/file.py:callable, torchvision:NAME or "
    "timm:NAME, with literal arguments where needed: file.py:Net(width=64)"
)


@dataclass(frozen=True)
class Spec:
    """A parsed specification: where to look, what to take, what to call it with."""

    text: str
    place: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    called: bool = False

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")


def parse(text: str) -> Spec:
    """Read a specification.

    Raises:
        UsageError: it has none of the four forms, or an argument is no literal.
    """
    body, brace, rest = text.partition("(")
    place, colon, name = body.strip().rpartition(":")
    name = name.strip()
    if not colon or not place or not name:
        raise UsageError(f"--model {text}: not an architecture", hint=_FORMS)
    if not brace:
        return Spec(text, place, name)
    args, kwargs = _literal_arguments(text, brace + rest)
    return Spec(text, place, name, args, kwargs, called=True)


def _literal_arguments(text: str, call: str) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    try:
        tree = ast.parse(f"f{call.strip()}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"--model {text}: the arguments cannot be read ({error})",
            hint="arguments are literals: callable(width=64, act='relu')",
        ) from error
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise UsageError(f"--model {text}: not a single call", hint=_FORMS)
    try:
        args = tuple(ast.literal_eval(argument) for argument in tree.args)
        kwargs = tuple((k.arg or "", ast.literal_eval(k.value)) for k in tree.keywords)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"--model {text}: an argument is not a literal",
            hint="numbers, strings, None, True, False and tuples, lists or dicts of them; for "
            "more, write a function without arguments and name that",
        ) from error
    names = [name for name, _ in kwargs]
    if "" in names:
        raise UsageError(
            f"--model {text}: ** is not read", hint="write each argument as NAME=VALUE"
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UsageError(
            f"--model {text}: the argument {repeated} is given twice", hint="give it once"
        )
    return args, kwargs


def raised_at(error: BaseException) -> str:
    """` (file:line)` of the innermost frame that raised, outside this folder; else empty."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent != Path(__file__).parent
    ]
    if not frames:
        return ""
    return f" ({_shown_path(frames[-1].filename)}:{frames[-1].lineno})"


def _shown_path(name: str) -> str:
    path = Path(name)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        parts = path.parts
        return (
            "/".join(parts[parts.index("site-packages") + 1 :])
            if ("site-packages" in parts)
            else path.name
        )
