"""What an export gives back: one entry per artifact, with its verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import IsomorphError, ParityError

if TYPE_CHECKING:
    from ..targets.base import Evidence
    from ..validation.report import Report

__all__ = ["ExportResult", "ExportedArtifact"]

# The order in which exit codes win when several targets end differently (DESIGN section 5).
PRECEDENCE = (1, 3, 4, 5, 7, 2, 6)


@dataclass(frozen=True)
class ExportedArtifact:
    """One format's outcome.

    `path` is where the artifact lies (in `NAME.rejected/` when parity failed),
    None if nothing was written; then `error` says why. `verdict` is "pass",
    "fail" or "unverified". `reports` holds one report per device.
    """

    format: str
    path: Path | None
    sha256: str | None
    bytes: int
    verdict: str
    evidence: Evidence | None
    seconds: dict[str, float]
    report_path: Path | None = None
    reports: tuple[Report, ...] = ()
    notes: tuple[str, ...] = ()
    error: IsomorphError | None = None

    @property
    def report(self) -> Report | None:
        """The report of the device that came out worst; None if nothing was validated."""
        order = {"fail": 0, "unverified": 1, "pass": 2}
        return min(self.reports, key=lambda r: order[r.verdict], default=None)

    def timed(self) -> tuple[Report, ...]:
        """The reports with the seconds of each stage, which no file beside the artifact holds."""
        return tuple(replace(report, seconds=self.seconds) for report in self.reports)

    def failure(self) -> IsomorphError | None:
        """The error that this entry stands for, if it is not good."""
        if self.error is not None:
            return self.error
        if self.verdict != "fail" or self.report is None:
            return None
        return ParityError(
            f"{self.format}: the artifact does not compute what the model computes: "
            f"{self.report.reason}{_first_wrong(self.report)}",
            hint=f"it was moved to {self.path.parent}/ with its report" if self.path else None,
        )

    def to_json(self) -> dict[str, Any]:
        report = self.report.to_json() if self.report is not None else {}
        return {
            "format": self.format,
            "path": str(self.path) if self.path else None,
            "sha256": self.sha256,
            "bytes": self.bytes,
            "verdict": self.verdict,
            "evidence": self.evidence.kind if self.evidence else None,
            "runtime": self.evidence.to_json() if self.evidence else None,
            "seconds": {stage: round(s, 3) for stage, s in self.seconds.items()},
            "report": str(self.report_path) if self.report_path else None,
            "outputs": report.get("outputs", []),
            "notes": list(self.notes),
            **({"error": error_document(self.error)} if self.error else {}),
        }


def _first_wrong(report: Report) -> str:
    return f"; {report.localization.summary}" if report.localization is not None else ""


@dataclass(frozen=True)
class ExportResult:
    """All artifacts of one export, in the order the formats were given."""

    source: str
    artifacts: tuple[ExportedArtifact, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """The worst verdict: "fail", "unverified" or "pass"."""
        verdicts = {artifact.verdict for artifact in self.artifacts}
        return next((v for v in ("fail", "unverified") if v in verdicts), "pass")

    def failures(self) -> list[IsomorphError]:
        """Errors of the artifacts that are not good, the one that gives the exit code first."""
        found = [f for f in (artifact.failure() for artifact in self.artifacts) if f is not None]
        return sorted(found, key=lambda error: PRECEDENCE.index(error.exit_code))

    def raise_for_verdict(self) -> None:
        """Raise the first failure; an unverified artifact raises nothing.

        Raises:
            ParityError: an artifact does not compute what the model computes.
            IsomorphError: a target failed otherwise.
        """
        for error in self.failures():
            raise error

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "artifacts": [artifact.to_json() for artifact in self.artifacts],
            "notes": list(self.notes),
        }


def error_document(error: IsomorphError) -> dict[str, Any]:
    """An error as JSON."""
    return {"code": error.exit_code, "message": error.message, "hint": error.hint}
