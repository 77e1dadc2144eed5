"""The report: figures and verdicts per output and per case, and its JSON form.

The JSON schema is stable within a `schema` number; docs/reports.md lists it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..expected import CaptureCheck
from ..verdict import FULL_RULE, Floor, Rule, Verdict

if TYPE_CHECKING:
    from ...targets.evidence import Evidence
    from .localization import Localization

__all__ = [
    "SCHEMA",
    "CaseReport",
    "EagerDifference",
    "KindReport",
    "OutputReport",
    "PooledReport",
    "Report",
]

SCHEMA = 2


@dataclass(frozen=True)
class PooledReport:
    """One output over `cases` cases of a kind taken together, in floors; see `pooled`."""

    rms: float
    shift: float
    gain: float
    cases: int

    def to_json(self) -> dict[str, Any]:
        return {
            "rms": _number(self.rms),
            "shift": _number(self.shift),
            "gain": _number(self.gain),
            "cases": self.cases,
        }


@dataclass(frozen=True)
class KindReport:
    """One output over the cases of one kind of input; figures in floors, the largest of them.

    `pooled` is None where the cases were judged one by one only.
    """

    kind: str
    verdict: Verdict
    cases: int
    reason: str = ""
    peak_ratio: float | None = None
    rms_ratio: float | None = None
    pooled: PooledReport | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "cases": self.cases,
            "reason": self.reason,
            "peak_ratio": _number(self.peak_ratio),
            "rms_ratio": _number(self.rms_ratio),
            "pooled": None if self.pooled is None else self.pooled.to_json(),
        }


@dataclass(frozen=True)
class OutputReport:
    """One output over all cases.

    `peak_ratio` and `rms_ratio` are in floors (limits: the report's rule), the
    largest of all cases; None for integers and booleans and where nothing could
    be compared. `max_abs` and `max_rel` are the largest distances from the truth
    in `worst_case`, and `floor` is its absolute floor. `mismatches` counts integers and booleans
    (or NaN and Inf) that differ, `unstable` those that noise changes. `shape`
    holds sizes and names of dims. `histogram` counts the elements of the cases of usual values by
    log2(|e| / RMS(T)), between `compare.HISTOGRAM_EDGES`; empty for integers.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    verdict: Verdict
    reason: str
    peak_ratio: float | None = None
    rms_ratio: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    floor: Floor | None = None
    worst_case: str | None = None
    mismatches: int = 0
    unstable: int = 0
    kinds: tuple[KindReport, ...] = ()
    histogram: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "verdict": self.verdict,
            "reason": self.reason,
            "peak_ratio": _number(self.peak_ratio),
            "rms_ratio": _number(self.rms_ratio),
            "max_abs": _number(self.max_abs),
            "max_rel": _number(self.max_rel),
            "floor": None
            if self.floor is None
            else {"peak": _number(self.floor.peak), "rms": _number(self.floor.rms)},
            "worst_case": self.worst_case,
            "mismatches": self.mismatches,
            "unstable": self.unstable,
            "kinds": [kind.to_json() for kind in self.kinds],
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class CaseReport:
    """One case over all outputs; `reason` tells why it did not earn a pass."""

    name: str
    kind: str
    description: str
    verdict: Verdict
    reason: str = ""
    peak_ratio: float | None = None
    rms_ratio: float | None = None
    generator: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "generator": self.generator,
            "description": self.description,
            "verdict": self.verdict,
            "reason": self.reason,
            "peak_ratio": _number(self.peak_ratio),
            "rms_ratio": _number(self.rms_ratio),
        }


@dataclass(frozen=True)
class EagerDifference:
    """One output of eager on the report's device: how far it is from the truth and from the CPU.

    `peak_ratio` and `rms_ratio` are its distance from the truth in floors of the CPU, `max_abs` its
    largest distance from eager on the CPU; `mismatches` counts integers and booleans that differ.
    """

    output: str
    peak_ratio: float | None = None
    rms_ratio: float | None = None
    max_abs: float | None = None
    mismatches: int = 0
    worst_case: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "peak_ratio": _number(self.peak_ratio),
            "rms_ratio": _number(self.rms_ratio),
            "max_abs": _number(self.max_abs),
            "mismatches": self.mismatches,
            "worst_case": self.worst_case,
        }


@dataclass(frozen=True)
class Report:
    """Whether an artifact computes what the eager model does, and how we know.

    `method` is "float64" (noise floor against a float64 truth), "tolerance" (a
    fixed one, where float64 is impossible), or "none" (values not compared).
    `reason` is one sentence that names the worst output. `model`, `format`, `artifact` (names,
    no paths) and `precision` say what was compared; `seconds` by stage, `versions` by package.
    `eager_difference` tells of eager on `evidence.device`, where that is not the CPU.
    """

    verdict: Verdict
    reason: str
    evidence: Evidence
    method: str = "none"
    outputs: tuple[OutputReport, ...] = ()
    cases: tuple[CaseReport, ...] = ()
    capture: CaptureCheck = field(default_factory=CaptureCheck)
    notes: tuple[str, ...] = ()
    rule: Rule = FULL_RULE
    model: str = ""
    format: str = ""
    artifact: str = ""
    precision: str = "fp32"
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    localization: Localization | None = None
    eager_difference: tuple[EagerDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON document; numbers that JSON lacks are the strings "Infinity" and "NaN"."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "reason": self.reason,
            "method": self.method,
            "limits": {
                "peak": self.rule.peak,
                "rms": self.rule.rms,
                "pooled": None if self.rule.pooled is None else asdict(self.rule.pooled),
            },
            "evidence": self.evidence.to_json(),
            "outputs": [output.to_json() for output in self.outputs],
            "cases": [case.to_json() for case in self.cases],
            "capture": {
                "passed": self.capture.passed,
                "reason": self.capture.reason,
                "severity": _number(self.capture.severity),
                "case": self.capture.case,
                "output": self.capture.output,
            },
            "notes": list(self.notes),
            "model": self.model,
            "format": self.format,
            "artifact": self.artifact,
            "precision": self.precision,
            "seconds": dict(self.seconds),
            "versions": dict(self.versions),
            "localization": None if self.localization is None else self.localization.to_json(),
            "eager_difference": [entry.to_json() for entry in self.eager_difference],
        }


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
