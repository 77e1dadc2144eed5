"""What `--set` can choose for a Core ML package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["TARGETS", "CoreMlOptions", "Deployment"]

Deployment = Literal[
    "iOS15",
    "iOS16",
    "iOS17",
    "iOS18",
    "iOS26",
    "macOS12",
    "macOS13",
    "macOS14",
    "macOS15",
    "macOS26",
]

TARGETS: dict[str, int] = {
    **{"iOS15": 15, "iOS16": 16, "iOS17": 17, "iOS18": 18, "iOS26": 26},
    **{"macOS12": 15, "macOS13": 16, "macOS14": 17, "macOS15": 18, "macOS26": 26},
}
"""The iOS release whose operator set a deployment target has."""


@dataclass(frozen=True)
class CoreMlOptions:
    """Every field is a `--set` key.

    deployment_target: the oldest system that loads the package. iOS17 by default: its operator
        set (gather and scatter with checked indices, 16-bit integers, batch norm with parameters
        of their own dtype) is the first with all that a captured graph needs; iOS18 adds a fused
        attention, states, and enumerated shapes for more than one input.
    shapes: "range" writes a dynamic dim's bounds, "enumerated" each of its sizes (128 at most),
        for which Core ML can plan ahead.
    compute_units: what an app is told to run the package on. It stands in the package's metadata
        and in the manifest; an app passes it to `MLModelConfiguration` itself.
    author: who made the model, in the package's metadata.
    license: its licence, there too.
    description: what it does, there too.
    version: its version, there too.
    """

    deployment_target: Deployment = "iOS17"
    shapes: Literal["range", "enumerated"] = "range"
    compute_units: Literal["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"] = "all"
    author: str | None = None
    license: str | None = None
    description: str | None = None
    version: str | None = None

    @property
    def release(self) -> int:
        """15 for iOS15 and macOS12, and so on."""
        return TARGETS[self.deployment_target]
