"""Sessions that show what is computed inside an artifact, and which node of the graph it is.

What localisation needs of a target (`validation/localize.py`): a session that can be watched, and
a trail from the artifact's own values back to the graph that the converter took. Both are
optional; a target that has neither is localised by stages only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..exporter.graph import Graph
    from .base import Session

__all__ = ["Stage", "Tracing", "Trail", "Value", "Watching"]


@dataclass(frozen=True)
class Value:
    """A value that is computed inside an artifact.

    name: what `run_watching` and `replay` call it; operator, node: the artifact's own operator
    type and node name (a user finds the node by it in a viewer). inputs: names of the values and
    of the artifact's inputs that it is computed from directly; weights and constants are left out.
    """

    name: str
    operator: str
    node: str
    inputs: tuple[str, ...]


@runtime_checkable
class Watching(Protocol):
    """A session whose intermediate values can be seen."""

    def values(self) -> tuple[Value, ...]:
        """Every value that can be watched, in the order in which it is computed."""
        ...

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """`run`, with the values of `names` beside the outputs.

        Watching may keep a runtime from fusing: what comes out can differ from `run`.
        """
        ...

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The values of `names` computed from the values in `given` alone, as the artifact would.

        `given` holds values and inputs of the artifact; nothing upstream of them is computed.
        A session that cannot do this raises `NotImplementedError`.
        """
        ...


@dataclass(frozen=True)
class Stage:
    """One form of the model on its way into the artifact, which can be run by itself.

    name: "converted" (what the converter wrote, before any optimisation), "optimised" (after the
    libraries' own passes), "file" (the artifact as it is, run as plainly as the runtime allows),
    "runtime" (run as it is deployed). `open` gives a session; it may raise any IsomorphError.
    """

    name: str
    open: Callable[[], Session]


@dataclass(frozen=True)
class Trail:
    """From an artifact back to the graph.

    graph: the legalised graph, as the converter took it: its nodes carry module path and line.
    values: name of a value in the artifact -> name of the node of `graph` that it is.
    stages: forms between `graph` and the artifact, in order.
    """

    graph: Graph
    values: Mapping[str, str]
    stages: tuple[Stage, ...] = field(default=())


@runtime_checkable
class Tracing(Protocol):
    """A target that can tell which value of an artifact is which node of the graph."""

    def trail(self, graph: Graph, options: Any, artifact: Path, scratch: Path) -> Trail:
        """The way from `graph` to `artifact`.

        Args:
            graph: the captured graph, in the precision of the artifact.
            options: those that it was converted with.
            artifact: the file; it may have been changed since it was written.
            scratch: an empty folder for what is converted again.
        """
        ...
