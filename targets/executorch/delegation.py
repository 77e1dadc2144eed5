"""Gives parts of a lowered program to XNNPACK, and takes back what it cannot lower."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING, Any

from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["Partitioner", "delegated"]

# Parts that fail are found one by one, and each costs a lowering of them all.
_TRIES = 6


class Partitioner(XnnpackPartitioner):  # type: ignore[misc]
    """XNNPACK's own, which leaves out nodes by name, and reshapes of several dynamic sizes."""

    def __init__(self, dims: int = 0) -> None:
        kept = ALL_PARTITIONER_CONFIGS
        if dims > 1:  # XNNPACK's reshape takes one dynamic size, and its partitioner does not look
            kept = [config for config in kept if config.target_name != "view_copy.default"]
        super().__init__(configs=kept)
        self.left_out: set[str] = set()

    def get_matched_nodes_from_configs(self, ep: ExportedProgram) -> list[list[Node]]:
        matches: list[list[Node]] = super().get_matched_nodes_from_configs(ep)
        return [match for match in matches if self.left_out.isdisjoint(n.name for n in match)]


def delegated(edge: EdgeProgramManager, dims: int) -> tuple[EdgeProgramManager, frozenset[str]]:
    """`edge` with parts for XNNPACK, and the names of nodes that it failed to lower.

    Raises:
        Exception: what XNNPACK's lowering raises, where leaving nodes out does not help.
    """
    partitioner = Partitioner(dims)
    for _ in range(_TRIES):
        try:
            return edge.to_backend(partitioner), frozenset(partitioner.left_out)
        except Exception as error:
            culprits = _culprits(error)
            if culprits <= partitioner.left_out:
                raise
            partitioner.left_out |= culprits
    return edge.to_backend(partitioner), frozenset(partitioner.left_out)


def _culprits(error: BaseException) -> set[str]:
    """Nodes of the part that failed: those that the message names, else all of it."""
    part: Any = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "preprocess":
            part = frame.f_locals.get("edge_program", part)
    if part is None:
        return set()
    names = {node.name for node in part.graph.nodes if node.op == "call_function"}
    return names & set(re.findall(r"\w+", str(error))) or names
