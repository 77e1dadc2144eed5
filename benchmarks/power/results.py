"""What the study finds: one row for each faulted file, and one for each correct artifact."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from .architectures import is_held_out

__all__ = ["BANDS", "CorrectRow", "FaultRow", "Result", "band_of"]

# Floors; what is below the first is invisible: correct arithmetic moves the output as far.
BANDS = (1.0, 3.0, 10.0, 30.0)


def band_of(size: float) -> int:
    """0 for an invisible fault, then the band's number."""
    return sum(size >= bound for bound in BANDS)


@dataclass(frozen=True)
class FaultRow:
    """One fault in one architecture.

    size: how far it moves the float64 values, in floors, at the output and the case of usual
    values where that is most; infinite where an integer changes. verdict, peak, rms: Isomorph's,
    the largest in floors. rules: which other rules pass it. located: "single", "group", "wrong" or
    "none", and None where that was not tried; summary: what localisation said.
    """

    architecture: str
    kind: str
    operator: str
    node: str
    told: str
    size: float
    case: str
    verdict: str
    peak: float
    rms: float
    reason: str
    rules: dict[str, bool]
    located: str | None = None
    summary: str = ""

    @property
    def band(self) -> int:
        return band_of(self.size)

    @property
    def detected(self) -> bool:
        return self.verdict == "fail"

    @property
    def held_out(self) -> bool:
        """Neither the architecture nor the kind of fault was used to choose a constant."""
        return is_held_out(self.architecture) and is_held_out(self.kind)

    @property
    def tuning(self) -> bool:
        """Both may be looked at to choose one."""
        return not is_held_out(self.architecture) and not is_held_out(self.kind)


@dataclass(frozen=True)
class CorrectRow:
    """One correct artifact. checks: outputs times cases; rules: which other rules pass it, if they
    were asked.
    """

    architecture: str
    maker: str
    verdict: str
    peak: float
    rms: float
    checks: int
    reason: str
    rules: dict[str, bool]

    @property
    def held_out(self) -> bool:
        return is_held_out(self.architecture)


@dataclass(frozen=True)
class Result:
    """One architecture. gap: how far the evaluator of ONNX is from Isomorph's truth, in floors."""

    architecture: str
    faults: tuple[FaultRow, ...]
    correct: tuple[CorrectRow, ...]
    gap: float
    refused: int
    seconds: float
    problems: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _finite(asdict(self))
        return document

    @staticmethod
    def from_json(document: dict[str, Any]) -> Result:
        d = dict(document)
        d["faults"] = tuple(FaultRow(**_numbers(row)) for row in d["faults"])
        d["correct"] = tuple(CorrectRow(**_numbers(row)) for row in d["correct"])
        return Result(**{**d, "problems": tuple(d["problems"])})


def _finite(value: Any) -> Any:
    """JSON has no infinity: it is written as null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    names = ("size", "peak", "rms")
    return {**row, **{n: math.inf for n in names if n in row and row[n] is None}}
