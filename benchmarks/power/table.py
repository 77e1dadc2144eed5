"""The study's results as markdown, and their way into the page."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from .results import CorrectRow, FaultRow, Result
from .rules import RULES

__all__ = ["missed", "put_into", "table"]

_HEADER = ("1-3 floors", "3-10", "10-30", "above 30")
_FIGURES = 4  # columns of bands


def table(results: Sequence[Result], command: str, stack: str) -> str:
    """Everything that the page shows."""
    faults = [row for result in results for row in result.faults]
    correct = [row for result in results for row in result.correct]
    held, held_correct = [f for f in faults if f.held_out], [c for c in correct if c.held_out]
    refused = sum(result.refused for result in results)
    kinds = {row.kind for row in faults}
    lines = [
        f"Written by `{command}` on {stack}.",
        "",
        f"{len(results)} architectures, {len(kinds)} kinds of faults, {len(faults)} faulted files "
        f"({refused} more were refused by the runtime), {len(correct)} correct artifacts and "
        f"evaluations ({sum(c.checks for c in correct)} outputs times cases).",
        "",
        "Held out: neither the architecture nor the kind of fault was looked at to choose a "
        "constant (false alarms: nor the architecture).",
        "",
        *_rules(held, held_correct),
        "",
        "All:",
        "",
        *_rules(faults, correct),
        "",
        f"Below 1 floor, and so invisible: {sum(f.band == 0 for f in faults)} faults, of which the "
        f"noise-floor rule reports {sum(f.band == 0 and f.detected for f in faults)}.",
        "",
        *_makers(correct),
        "",
        *_kinds(faults),
        "",
        *_located(faults),
        "",
        f"The evaluator that sizes the faults is within {max(r.gap for r in results):.2f} floors "
        "of the truth on every correct file.",
    ]
    return "\n".join(lines)


def _rules(faults: Sequence[FaultRow], correct: Sequence[CorrectRow]) -> list[str]:
    """Every rule on the same files."""
    counts = [sum(f.band == band for f in faults) for band in range(1, _FIGURES + 1)]
    heads = [f"{name} ({n})" for name, n in zip(_HEADER, counts, strict=True)]
    lines = [
        f"| rule | false alarms of {len(correct)} | " + " | ".join(heads) + " |",
        "|---" * (_FIGURES + 2) + "|",
    ]

    def row(
        label: str, alarm: Callable[[CorrectRow], bool], caught: Callable[[FaultRow], bool]
    ) -> str:
        found = [
            _share(sum(f.band == band and caught(f) for f in faults), count)
            for band, count in enumerate(counts, 1)
        ]
        return f"| {label} | {sum(map(alarm, correct))} | " + " | ".join(found) + " |"

    lines.append(row("noise floor", lambda c: c.verdict == "fail", lambda f: f.detected))
    for name in RULES:
        lines.append(row(name, partial(_refuses, name), partial(_refuses, name)))
    return lines


def _refuses(rule: str, row: CorrectRow | FaultRow) -> bool:
    return not row.rules.get(rule, True)


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else "none tried"


def _makers(correct: Sequence[CorrectRow]) -> list[str]:
    """How far correct artifacts are, by what made them."""
    lines = [
        "| correct | runs | checks | worst peak | worst RMS | failed | unverified |",
        "|---|---|---|---|---|---|---|",
    ]
    for maker in dict.fromkeys(c.maker for c in correct):
        rows = [c for c in correct if c.maker == maker]
        verdicts = Counter(c.verdict for c in rows)
        lines.append(
            f"| {maker} | {len(rows)} | {sum(c.checks for c in rows)} "
            f"| {max(c.peak for c in rows):.2f} | {max(c.rms for c in rows):.2f} "
            f"| {verdicts['fail']} | {verdicts['unverified']} |"
        )
    return lines


def _kinds(faults: Sequence[FaultRow]) -> list[str]:
    """Detection by kind of fault, held out or not."""
    lines = [
        "| kind of fault | files | visible | detected | of those above 10 floors |",
        "|---|---|---|---|---|",
    ]
    for kind in sorted({f.kind for f in faults}):
        rows = [f for f in faults if f.kind == kind]
        seen = [f for f in rows if f.band]
        large = [f for f in rows if f.band > 2]
        lines.append(
            f"| {kind} | {len(rows)} | {len(seen)} | {sum(f.detected for f in seen)} "
            f"| {sum(f.detected for f in large)} of {len(large)} |"
        )
    return lines


def _located(faults: Iterable[FaultRow]) -> list[str]:
    tried = [f for f in faults if f.located is not None]
    if not tried:
        return ["No fault was localised."]
    counts = Counter(f.located for f in tried)
    named = counts["single"] + counts["group"]
    return [
        f"Localised: {len(tried)} detected faults, drawn at random for each architecture. The "
        f"broken operator is named in {_share(named, len(tried))}: alone in "
        f"{_share(counts['single'], len(tried))}, as part of the group that the artifact computes "
        f"as one in {counts['group']}. Another operator is named in {counts['wrong']}, none in "
        f"{counts['none']}.",
    ]


def missed(results: Sequence[Result]) -> str:
    """Visible faults that were not found and may be looked at, largest first, and false alarms."""
    faults = [f for r in results for f in r.faults if f.tuning and f.band and not f.detected]
    lines = [
        f"{f.architecture}\t{f.kind}\t{f.operator}\t{f.told}\t{f.size:.1f} floors on {f.case}\t"
        f"{f.verdict}\tpeak {f.peak:.2f}\trms {f.rms:.2f}"
        for f in sorted(faults, key=lambda f: -f.size if math.isfinite(f.size) else -math.inf)
    ]
    lines += [
        f"{c.architecture}\tcorrect: {c.maker}\t{c.verdict}\tpeak {c.peak:.2f}\trms {c.rms:.2f}\t"
        f"{c.reason}"
        for r in results
        for c in r.correct
        if not c.held_out and c.verdict != "pass"
    ]
    return "\n".join(lines)


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the page's marks.

    Raises:
        SystemExit: the page has no marks.
    """
    marks = r"(<!-- parity_power:begin -->\n).*?(<!-- parity_power:end -->)"
    before = page.read_text(encoding="utf-8")
    after, count = re.subn(marks, lambda m: m[1] + text + "\n" + m[2], before, flags=re.S)
    if count != 1:
        raise SystemExit(f"{page.name} lacks the marks parity_power:begin and parity_power:end")
    page.write_text(after, encoding="utf-8")
