"""All rules together: several tables may know an operator, each for some of its forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from ..nodes import Editor
from .common import RULES, Rule
from .convolutions import CONVOLUTION_RULES
from .embedding import EMBEDDING_RULES
from .linear_algebra import LINALG_RULES
from .moving import MOVING_RULES
from .nearest import NEAREST_RULES
from .pooling_windows import WINDOW_RULES
from .sampling import SAMPLING_RULES
from .scattering import SCATTER_RULES
from .special_functions import SPECIAL_RULES
from .strided import STRIDED_RULES

__all__ = ["EVERY_RULE", "SHARED_TABLES", "merged"]


def merged(*tables: Mapping[Any, Rule]) -> dict[Any, Rule]:
    """All rules; where several tables know an operator, the first that can help does."""
    chains: dict[Any, list[Rule]] = {}
    for table in tables:
        for target, rule in table.items():
            chain = chains.setdefault(target, [])
            if rule not in chain:
                chain.append(rule)
    return {target: _first_of(rules) for target, rules in chains.items()}


def _first_of(rules: Sequence[Rule]) -> Rule:
    def rule(editor: Editor, node: Node) -> Any:
        found = (value for known in rules if (value := known(editor, node)) is not None)
        return next(found, None)

    return rule


SHARED_TABLES: tuple[Mapping[Any, Rule], ...] = (
    RULES,
    SPECIAL_RULES,
    SCATTER_RULES,
    LINALG_RULES,
    STRIDED_RULES,
    WINDOW_RULES,
    NEAREST_RULES,
    MOVING_RULES,
    SAMPLING_RULES,
    CONVOLUTION_RULES,
    EMBEDDING_RULES,
)
"""What every target may use for operators that its converter lacks, table by table."""

EVERY_RULE = merged(*SHARED_TABLES)
"""The same as one table."""
