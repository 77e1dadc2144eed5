"""The least evidence that a user accepts: `--require`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UnprovenError, UsageError

if TYPE_CHECKING:
    from ..validation.report import Report

__all__ = ["REQUIRE", "check_require", "demand_evidence"]

REQUIRE = ("executed", "evaluated")

_RANK = {"built": 0, "evaluated": 1, "executed": 2}


def check_require(require: str | None) -> None:
    """Refuse what no evidence is called.

    Raises:
        UsageError: `require` is neither None nor of `REQUIRE`.
    """
    if require not in (None, *REQUIRE):
        raise UsageError(f"require takes executed or evaluated, not {require!r}")


def demand_evidence(
    reports: Sequence[Report], require: str | None, remedy: str | None = None
) -> None:
    """On every device the artifact must be known as well as `require` says.

    Args:
        reports: one for each device.
        require: one of `REQUIRE`, or None for no demand.
        remedy: what brings the format's runtime.

    Raises:
        UnprovenError: one is not.
    """
    if require is None:
        return
    for report in reports:
        kind = report.evidence.kind
        if kind != "built" and _RANK[kind] < _RANK[require]:
            raise UnprovenError(
                f"{report.format} was {kind} here, and {require} evidence is required",
                hint=remedy or "run it on the target device",
                reports=tuple(reports),
            )
        if report.verdict == "unverified":
            raise UnprovenError(
                f"{report.format} could not be verified, and {require} evidence is required: "
                f"{report.reason}",
                hint=remedy
                if kind == "built" and remedy
                else "require less, or nothing (--require"
                ', or require = "built" in a configuration), to accept what is not verified',
                reports=tuple(reports),
            )
