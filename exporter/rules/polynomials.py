"""Orthogonal polynomials of a fixed degree, by their recurrences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..nodes import Editor, tensor_value
from .formulas import formula

__all__ = ["POLYNOMIAL_RULES"]

aten = torch.ops.aten

# Longer recurrences would make unwieldy graphs, and lose digits in float32.
_HIGHEST = 64

_First = Callable[[Tensor], Tensor]
_Next = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""x, the polynomial of degree k, that of degree k - 1, and k: what follows."""


def _chebyshev(x: Tensor, current: Tensor, before: Tensor, _k: float) -> Tensor:
    return x * current * 2.0 - before


def _shifted(x: Tensor, current: Tensor, before: Tensor, _k: float) -> Tensor:
    return (x * 4.0 - 2.0) * current - before


def _hermite(x: Tensor, current: Tensor, before: Tensor, k: float) -> Tensor:
    return x * current * 2.0 - before * (2.0 * k)


def _hermite_e(x: Tensor, current: Tensor, before: Tensor, k: float) -> Tensor:
    return x * current - before * k


def _laguerre(x: Tensor, current: Tensor, before: Tensor, k: float) -> Tensor:
    return ((2.0 * k + 1.0 - x) * current - before * k) / (k + 1.0)


def _legendre(x: Tensor, current: Tensor, before: Tensor, k: float) -> Tensor:
    return (x * current * (2.0 * k + 1.0) - before * k) / (k + 1.0)


# The polynomial of degree 1 and the recurrence: Abramowitz and Stegun, table 22.7; V and W: DLMF
# 18.9.
_FAMILIES: dict[str, tuple[_First, _Next]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev),
    "chebyshev_polynomial_u": (lambda x: x * 2.0, _chebyshev),
    "chebyshev_polynomial_v": (lambda x: x * 2.0 - 1.0, _chebyshev),
    "chebyshev_polynomial_w": (lambda x: x * 2.0 + 1.0, _chebyshev),
    "shifted_chebyshev_polynomial_t": (lambda x: x * 2.0 - 1.0, _shifted),
    "shifted_chebyshev_polynomial_u": (lambda x: x * 4.0 - 2.0, _shifted),
    "shifted_chebyshev_polynomial_v": (lambda x: x * 4.0 - 3.0, _shifted),
    "shifted_chebyshev_polynomial_w": (lambda x: x * 4.0 - 1.0, _shifted),
    "hermite_polynomial_h": (lambda x: x * 2.0, _hermite),
    "hermite_polynomial_he": (lambda x: x, _hermite_e),
    "laguerre_polynomial_l": (lambda x: 1.0 - x, _laguerre),
    "legendre_polynomial_p": (lambda x: x, _legendre),
}


def _evaluated(name: str, degree: int, x: Tensor) -> Tensor:
    """The polynomial of a degree: zero where it is negative, as torch has it."""
    if degree <= 0:
        return torch.full_like(x, 1.0 if degree == 0 else 0.0)
    first, following = _FAMILIES[name]
    before, current = torch.full_like(x, 1.0), first(x)
    for k in range(1, degree):
        before, current = current, following(x, current, before, float(k))
    return current


def _rule(name: str, editor: Editor, node: Node) -> Any:
    degree = _number(node.args[1])
    if degree is None or degree > _HIGHEST:
        return None
    return formula(lambda x, _n: _evaluated(name, int(degree), x))(editor, node)


def _number(item: Any) -> float | None:
    """The one value of an argument, where it does not depend on what the model is given."""
    if isinstance(item, (int, float)):
        return float(item)
    if not isinstance(item, Node):
        return None
    if item.target in (aten.full.default, aten.full_like.default):
        return _number(item.args[1])
    if item.target is aten.scalar_tensor.default:
        return _number(item.args[0])
    constant = getattr(tensor_value(item), "constant", None)
    if isinstance(constant, Tensor) and constant.numel() == 1:
        return float(constant.item())
    return None


POLYNOMIAL_RULES: dict[Any, Any] = {
    getattr(getattr(aten, f"special_{name}"), overload): partial(_rule, name)
    for name in _FAMILIES
    for overload in ("default", "n_scalar")
}
