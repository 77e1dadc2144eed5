"""What the reference holds: the right values, their noise, and whether the capture is sound.

Data only, in numpy; `reference.compute` makes it and `parity.judge` reads it. Shipped as it stands
in packages that are checked on a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .detections import Group, Rows
from .verdict import FULL_RULE, HALF_RULE, Noise, Rule

if TYPE_CHECKING:
    from ..exporter.graph import Graph
    from .cases import Case

__all__ = ["CaptureCheck", "Expected", "Reference"]


@dataclass(frozen=True)
class Expected:
    """One output in one case.

    truth: float64 (complex128); for integers and booleans eager's own values.
    noise: the truth's size and the lanes' errors; the first lane is eager.
    codes: eager's `nonfinite_codes`, None where all its values are finite.
    intrinsic: eager is not finite exactly where the truth is not either.
    unstable: for integers and booleans, which elements change under noise.
    doubt: why no artifact earns a pass here, such as that half precision overflows; else empty.
    """

    dtype: str
    shape: tuple[int, ...]
    truth: NDArray[Any]
    noise: Noise
    codes: NDArray[np.int8] | None = None
    intrinsic: bool = True
    unstable: NDArray[np.bool_] | None = None
    doubt: str = ""

    @property
    def is_discrete(self) -> bool:
        return self.unstable is not None

    @property
    def is_measured(self) -> bool:
        """Whether an artifact's distance from the truth is measured in floors here."""
        sound = self.codes is None or (self.intrinsic and not (self.codes == 1).any())
        return not self.is_discrete and self.truth.size > 0 and sound and not self.doubt


@dataclass(frozen=True)
class CaptureCheck:
    """Whether the captured program computes what the eager model does.

    reason: one sentence saying where it does not and by how much, else None.
    severity: distance of the worst case and output, as a share of the limit.
    """

    reason: str | None = None
    hint: str | None = None
    severity: float = 0.0
    case: str | None = None
    output: str | None = None

    @property
    def passed(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class Reference:
    """Truth and noise for every case and output.

    cases: those that the eager model takes.
    expected: by case name and output name.
    capture: the caller decides what to do when it does not agree.
    random: operators that draw random numbers; then values are not compared.
    tolerance_reason: why there is no float64 truth; None where there is one.
    notes: what a reader of the report must know.
    graph: the captured model that truth and noise were computed with.
    dtype: the half type whose noise the floor is; None for the floor of the model as captured.
    besides: noise of cases that nobody runs, by kind and output; it counts for the kind's floor.
    detections: outputs whose rows are matched before they are compared.
    rows: by case and boxes, which of their rows rounding noise changes.
    """

    cases: tuple[Case, ...]
    expected: Mapping[str, Mapping[str, Expected]]
    capture: CaptureCheck = field(default_factory=CaptureCheck)
    random: tuple[str, ...] = ()
    tolerance_reason: str | None = None
    notes: tuple[str, ...] = ()
    graph: Graph | None = None
    dtype: str | None = None
    besides: Mapping[str, Mapping[str, tuple[Noise, ...]]] = field(default_factory=dict)
    detections: tuple[Group, ...] = ()
    rows: Mapping[str, Mapping[str, Rows]] = field(default_factory=dict)

    @property
    def rule(self) -> Rule:
        """The limits for artifacts of this precision."""
        return FULL_RULE if self.dtype is None else HALF_RULE
