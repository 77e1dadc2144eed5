"""What moved between two documents of reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Change", "Difference", "compare", "lines"]

_ORDER = {"pass": 0, "unverified": 1, "fail": 2, "error": 2}

# A figure that is this much larger or smaller (times) has moved; below it is noise between versions
# of a runtime.
_MOVED = 1.5


@dataclass(frozen=True)
class Change:
    """One artifact, or one output of it. Verdicts are None where a side does not have it, "error"
    where it could not be made or proved.
    """

    name: str
    old_verdict: str | None
    new_verdict: str | None
    old_peak: float | None = None
    new_peak: float | None = None

    @property
    def is_worse(self) -> bool:
        """A verdict got worse, or what was checked is no longer checked."""
        if self.old_verdict is None:
            return self.new_verdict in ("fail", "error")
        if self.new_verdict is None:
            return True
        return _ORDER.get(self.new_verdict, 2) > _ORDER.get(self.old_verdict, 2)

    @property
    def moved(self) -> bool:
        if self.old_verdict != self.new_verdict:
            return True
        old, new = self.old_peak, self.new_peak
        if old is None or new is None:
            return old is not new
        low, high = sorted((old, new))
        return high > _MOVED * low


@dataclass(frozen=True)
class Difference:
    """All that moved, and of how many entries that were compared."""

    changes: tuple[Change, ...]
    compared: int

    @property
    def worse(self) -> list[Change]:
        return [change for change in self.changes if change.is_worse]

    def to_json(self) -> dict[str, Any]:
        changes = [{**asdict(c), "worse": c.is_worse} for c in self.changes]
        return {"compared": self.compared, "worse": len(self.worse), "changes": changes}


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """Match artifacts by model, format, precision and device, and outputs by name."""
    before, after = dict(_entries(old)), dict(_entries(new))
    _meet(before, after)
    _meet(after, before)
    changes = []
    for name in dict.fromkeys((*before, *after)):
        was, now = before.get(name), after.get(name)
        change = Change(
            name,
            None if was is None else was["verdict"],
            None if now is None else now["verdict"],
            None if was is None else _figure(was),
            None if now is None else _figure(now),
        )
        if change.moved:
            changes.append(change)
    return Difference(tuple(changes), len({*before, *after}))


def _entries(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Reports and their outputs by a name that is the same in both documents."""
    counts: dict[str, int] = {}
    for report in document["reports"]:
        evidence = report.get("evidence") or {}
        parts = (
            report.get("model"),
            report.get("format"),
            report.get("precision"),
            evidence.get("device"),
        )
        name = " ".join(str(part) for part in parts if part) or "artifact"
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            name = f"{name} #{counts[name]}"
        yield name, report
        for output in report["outputs"]:
            yield f"{name} / {output['name']}", output
    for error in document.get("errors", ()):
        yield _error_name(error), {"verdict": "error"}


def _error_name(entry: Mapping[str, Any]) -> str:
    """An error has come to no device and no precision."""
    parts = (entry.get("model"), entry.get("format"))
    return " ".join(str(part) for part in parts if part) or "isomorph"


def _meet(here: dict[str, Mapping[str, Any]], there: dict[str, Mapping[str, Any]]) -> None:
    """What is an error `here` gets the names that its artifacts have `there`."""
    for name in [name for name, entry in here.items() if entry["verdict"] == "error"]:
        missing = [
            other
            for other, entry in there.items()
            if "evidence" in entry and _error_name(entry) == name and other not in here
        ]
        for other in missing:
            here[other] = here[name]
            for output in [key for key in there if key.startswith(f"{other} / ")]:
                del there[output]
        if missing and name not in there:
            del here[name]


def _figure(entry: Mapping[str, Any]) -> float | None:
    """Peak ratio of an output; infinities are texts in a document."""
    value = entry.get("peak_ratio")
    return None if value is None else float(value)


def lines(difference: Difference) -> Iterator[str]:
    """The difference as text, what is worse first."""
    if not difference.changes:
        yield f"nothing moved ({difference.compared} compared)"
        return
    for change in sorted(difference.changes, key=lambda c: not c.is_worse):
        old, new = change.old_verdict or "absent", change.new_verdict or "absent"
        verdict = old if old == new else f"{old} -> {new}"
        figures = ""
        if change.old_peak is not None or change.new_peak is not None:
            figures = f"  {_shown(change.old_peak)} -> {_shown(change.new_peak)} floors"
        yield f"{'worse ' if change.is_worse else 'moved '} {change.name}: {verdict}{figures}"
    yield f"{len(difference.changes)} of {difference.compared} moved"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.1e}"
