"""Operators that draw random numbers: what they give cannot be compared."""

from __future__ import annotations

from typing import NoReturn

from .call import Call, Operator

__all__ = ["OPERATORS"]


def _drawn(call: Call) -> NoReturn:
    call.refuse("it draws random numbers")


OPERATORS: dict[str, Operator] = dict.fromkeys(
    ("random_bernoulli", "random_categorical", "random_normal", "random_uniform"), _drawn
)
