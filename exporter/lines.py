"""Which line of whose code a node comes from, by the stack trace that torch keeps with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Frame", "user_frame", "user_line"]

# Their lines say how an operator is computed, not where the model asks for it.
_MACHINERY = ("torch", "isomorph")

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<number>\d+)')


@dataclass(frozen=True)
class Frame:
    """A line of a source file, with its text where the trace shows it."""

    file: Path
    number: int
    text: str

    @property
    def package(self) -> str | None:
        """The installed package that the file belongs to; None for the user's own files."""
        parts = self.file.parts
        if "site-packages" not in parts:
            return None
        return next(iter(parts[parts.index("site-packages") + 1 :]), "")

    def shown(self, root: Path | None = None) -> str:
        """`file:line`, relative to `root` (the working folder if None) or to site-packages."""
        base = root or Path.cwd()
        if self.package is not None:
            shown = Path(*self.file.parts[self.file.parts.index("site-packages") + 1 :])
        elif self.file.is_relative_to(base):
            shown = self.file.relative_to(base)
        else:
            shown = Path(self.file.name)
        return f"{shown.as_posix()}:{self.number}"


def user_frame(trace: str) -> Frame | None:
    """The innermost frame of the user's; else of the library with the model; else of torch's."""
    frames: list[Frame] = []
    lines = trace.splitlines()
    for index, line in enumerate(lines):
        found = _FRAME.match(line)
        # torch traces some sub-graphs (torch.cond) through source of its own, called <eval_...>.
        if found is None or found["file"].startswith("<"):
            continue
        after = lines[index + 1].strip() if index + 1 < len(lines) else ""
        text = "" if after.startswith('File "') else after
        frames.append(Frame(Path(found["file"]), int(found["number"]), text))
    own = [frame for frame in frames if frame.package is None]
    model = [frame for frame in frames if frame.package not in _MACHINERY]
    return next((group[-1] for group in (own, model, frames) if group), None)


def user_line(trace: str, root: Path | None = None) -> str:
    """`file:line` of `user_frame`; empty where the trace has no frame."""
    frame = user_frame(trace)
    return "" if frame is None else frame.shown(root)
