"""Which function computes each layer type. What is not here is unverified, never guessed."""

from __future__ import annotations

from .call import Operator
from .shaping import OPERATORS as _SHAPING

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {**_SHAPING}
