"""A pytest suite that every target must pass: ours, and those of other packages.

A target comes in, failures that say what its author must do come out:

    from isomorph.targets.conformance import TargetConformance

    class TestMine(TargetConformance):
        target = "mine"  # a format's name, or a class that follows targets.base.Target

docs/writing-a-target.md tells how to declare what a format cannot do. Only tests
reach this package: nothing else in Isomorph imports it, and it needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .suite import TargetConformance

__all__ = ["TargetConformance"]


def __getattr__(name: str) -> Any:
    if name != "TargetConformance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ...errors import MissingRequirementError

    try:
        from .suite import TargetConformance
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise MissingRequirementError(
            "the conformance suite of targets runs on pytest, which is not installed",
            hint="run: pip install pytest",
        ) from error
    return TargetConformance
