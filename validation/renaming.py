"""An artifact that another tool made: its inputs and outputs may have names of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InputFileError
from ..targets.closing import Closing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..exporter.graph import Graph
    from ..exporter.signature import TensorSpec
    from ..targets.base import Session
    from .report.model import Report

__all__ = ["RenamedSession", "by_position"]


class RenamedSession(Closing):
    """A session under the model's names.

    Args:
        session: the artifact's.
        graph: the model's.
        inputs, outputs: the artifact's name for each of the model's.
    """

    def __init__(
        self, session: Session, graph: Graph, inputs: Mapping[str, str], outputs: Mapping[str, str]
    ) -> None:
        self._session = session
        self._names = dict(inputs)
        self._results = dict(outputs)
        self.inputs = graph.inputs
        self.outputs = graph.outputs
        self.evidence = session.evidence
        self.readings: tuple[str, ...] = getattr(session, "readings", ())
        changed = [f"{own} is {name}" for name, own in {**inputs, **outputs}.items() if own != name]
        self.note = (
            "the artifact has other names than the model, so inputs and outputs were matched by "
            f"their position: {', '.join(changed)}"
        )

    def run(self, inputs: Mapping[str, NDArray[Any]], **how: str) -> dict[str, NDArray[Any]]:
        """As of the session."""
        given = {self._names[name]: array for name, array in inputs.items()}
        run: Any = self._session.run
        found = run(given, **how)
        return {name: found[own] for name, own in self._results.items() if own in found}

    def told(self, report: Report) -> Report:
        """The report, which says what was matched by position; a fault is not looked for."""
        if report.verdict != "fail":
            return replace(report, notes=(*report.notes, self.note))
        names = [[spec.name for spec in specs] for specs in (self.inputs, self.outputs)]
        what = (
            "the operator was not looked for, which takes the model's names in the artifact; "
            f"torch.onnx.export takes them as input_names={names[0]}, output_names={names[1]}"
        )
        reason = f"{report.reason} ({self.note})"
        return replace(report, reason=reason, notes=(*report.notes, self.note, what))

    def close(self) -> None:
        """The session is its owner's."""


def by_position(session: Session, graph: Graph) -> RenamedSession | None:
    """The session under the model's names, or None where it has them.

    What has the model's name is taken by name. The rest is taken by position, where count, dtypes
    and shapes leave no doubt; two inputs of one type could still be swapped, which parity shows.

    Raises:
        InputFileError: they do not fit; it lists what is expected and what was found.
    """
    if _named(session.inputs, graph.inputs) and _named(session.outputs, graph.outputs):
        return None
    inputs = _pairs(session.inputs, graph.inputs)
    outputs = _pairs(session.outputs, graph.outputs)
    if inputs is None or outputs is None:
        kind, found, wanted = (
            ("inputs", session.inputs, graph.inputs)
            if inputs is None
            else ("outputs", session.outputs, graph.outputs)
        )
        raise InputFileError(
            f"the artifact's {kind} are not the model's: expected {_text(wanted)}; "
            f"found {_text(found)}",
            hint="name them alike when the artifact is made, and give the shapes with --input",
        )
    return RenamedSession(session, graph, inputs, outputs)


def _named(found: Sequence[TensorSpec], wanted: Sequence[TensorSpec]) -> bool:
    return {spec.name for spec in found} >= {spec.name for spec in wanted}


def _pairs(found: Sequence[TensorSpec], wanted: Sequence[TensorSpec]) -> dict[str, str] | None:
    """The artifact's name for each of the model's; None where they do not fit."""
    if len(found) != len(wanted):
        return None
    names = {spec.name for spec in wanted}
    rest = iter([spec for spec in found if spec.name not in names])
    own = {spec.name: spec for spec in found}
    pairs = {}
    for spec in wanted:
        other = own.get(spec.name) or next(rest)
        if other.dtype != spec.dtype or not _fits(other.shape, spec.shape):
            return None
        pairs[spec.name] = other.name
    return pairs


def _fits(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Fixed sizes must be equal; a dynamic axis takes any."""
    return len(found) == len(wanted) and all(
        a == b
        for a, b in zip(found, wanted, strict=True)
        if isinstance(a, int) and isinstance(b, int)
    )


def _text(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(
        f"{spec.name} {spec.dtype}[{'x'.join(str(getattr(d, 'name', d)) for d in spec.shape)}]"
        for spec in specs
    )
