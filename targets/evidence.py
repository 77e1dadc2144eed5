"""The honest label of how we know what an artifact computes.

Shipped as it stands in packages that are checked on a device: numpy and the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Evidence", "EvidenceKind"]

EvidenceKind = Literal["executed", "evaluated", "built"]


@dataclass(frozen=True)
class Evidence:
    """How we know what an artifact computes.

    executed: the target's own runtime ran the written file on `device`.
    evaluated: an evaluator of ours read the written file back and computed it.
    built: written, and nothing else is known.

    `details` holds what the runtime reports about itself (provider, layer
    precision, delegated share), "unknown" where it does not say.
    """

    kind: EvidenceKind
    runtime: str
    version: str
    device: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "runtime": self.runtime,
            "version": self.version,
            "device": self.device,
            **({"details": dict(self.details)} if self.details else {}),
        }
