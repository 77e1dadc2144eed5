"""Where an artifact leaves the truth: data only, as the report holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Culprit", "CurvePoint", "Localization", "StageFigure"]


@dataclass(frozen=True)
class StageFigure:
    """One stage that was run on the failing case: eager, exported program, legalised, converted,
    optimised, file, runtime.

    `peak_ratio` and `rms_ratio` are the worst output's, in floors; None where the stage could not
    be run, and `note` says why.
    """

    name: str
    passed: bool | None
    peak_ratio: float | None = None
    rms_ratio: float | None = None
    note: str = ""


@dataclass(frozen=True)
class CurvePoint:
    """Error at one value on the way through the graph, in floors of that value."""

    index: int
    node: str
    module: str
    ratio: float


@dataclass(frozen=True)
class Culprit:
    """The first operator, or group of operators that the artifact computes as one, that is wrong.

    operators: nodes of the graph, such as ("gelu",); more than one where the artifact fuses them.
    targets: what they are in torch ("aten.gelu.default"). module, location, source: where the user
    wrote the (last) one: "blocks.3.mlp.act", "model.py:41", and that line's text. artifact_node,
    artifact_operator: the artifact's own name and type of it. before, after: larger of peak and
    RMS error in floors at its inputs and at its output; alone: the same when it is run alone on
    the true inputs, None where the runtime cannot do that.
    """

    operators: tuple[str, ...]
    targets: tuple[str, ...]
    module: str
    location: str
    source: str
    artifact_node: str
    artifact_operator: str
    before: float | None
    after: float | None
    alone: float | None = None


@dataclass(frozen=True)
class Localization:
    """What localisation found. `stage` is the first that is wrong; `case` the one that was used."""

    case: str
    stage: str
    summary: str
    stages: tuple[StageFigure, ...] = ()
    culprit: Culprit | None = None
    curve: tuple[CurvePoint, ...] = ()
    reproduction: str | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)
