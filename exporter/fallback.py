"""What is made where a format cannot be: the file that it would have been built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import MissingRequirementError
from ..targets import registry
from ..targets.options import build_options

if TYPE_CHECKING:
    from .planning import Plan
    from .result import ExportedArtifact

__all__ = ["fallback_of", "told_of_fallbacks"]


def fallback_of(plan: Plan, formats: Sequence[str]) -> Plan | None:
    """The plan for the format that the target names as its `fallback`.

    None where the plan has no problem, or one that another machine does not solve, or where that
    format is made anyway.
    """
    name = getattr(plan.target, "fallback", None)
    if not isinstance(plan.problem, MissingRequirementError) or name is None or name in formats:
        return None
    target = registry.get(name)
    wishes = dict(getattr(plan.target, "fallback_options", {}))
    if (opset := getattr(plan.options, "opset", None)) is not None:
        wishes["opset"] = opset
    stem = plan.destination.name.removesuffix(plan.target.suffix)
    return replace(
        plan,
        target=target,
        options=build_options(target.options_type, wishes),
        destination=plan.destination.with_name(stem + target.suffix),
        problem=None,
        stands_for=plan.name,
    )


def told_of_fallbacks(
    plans: Sequence[Plan], artifacts: Sequence[ExportedArtifact]
) -> tuple[ExportedArtifact, ...]:
    """The artifacts; the error of a format that could not be made names what was written."""
    written = {
        plan.stands_for: artifact
        for plan, artifact in zip(plans, artifacts, strict=True)
        if plan.stands_for is not None
    }
    return tuple(_told(artifact, written.get(artifact.format)) for artifact in artifacts)


def _told(artifact: ExportedArtifact, instead: ExportedArtifact | None) -> ExportedArtifact:
    error = artifact.error
    if (
        not isinstance(error, MissingRequirementError)
        or instead is None
        or instead.path is None
        or instead.verdict == "fail"
    ):
        return artifact
    done = "written and checked" if instead.verdict == "pass" else "written"
    what = f"the network that it is built from was {done}: {instead.path}"
    return replace(artifact, error=type(error)(f"{error.message}; {what}", hint=error.hint))
