"""Rules written as formulas: a function of tensors whose operators take a node's place.

The formulas use what every runtime has: arithmetic, comparisons, `where`, and a few elementary
functions. They avoid what runtimes document loosely: `reciprocal` (Core ML adds 1e-4), the
logarithm of zero, NaN in a minimum or maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..nodes import Editor, tensor_value
from .traced import traced

if TYPE_CHECKING:
    from torch.fx import Node

    from .common import Rule

__all__ = [
    "INF",
    "NAN",
    "as_tensor",
    "chebyshev",
    "choose",
    "divided",
    "formula",
    "has_sign",
    "is_nan",
    "log",
    "mirrored",
    "polynomial",
    "quotient",
]

INF, NAN = float("inf"), float("nan")


def formula(function: Callable[..., Any]) -> Rule:
    """The rule that computes an operator by `function`, which takes all of its arguments in order.

    Floats are computed in float32, to which integers and booleans are converted, and the results
    are cast to the operator's own dtypes. What takes or gives float64 is left alone, since the
    approximations are made for float32; so is what gives integers, unless beside floats.
    """

    def rule(editor: Editor, node: Node) -> Any:
        wanted = node.meta["val"]
        results = [v for v in pytree.tree_leaves(wanted) if isinstance(v, Tensor)]
        given = [v for n in node.all_input_nodes if (v := tensor_value(n)) is not None]
        if any(v.dtype == torch.float64 or v.is_complex() for v in (*results, *given)):
            return None
        if not any(v.is_floating_point() or v.dtype == torch.bool for v in results):
            return None

        def computed(*args: Any) -> Any:
            found = function(*pytree.tree_map_only(Tensor, _single, args))
            if isinstance(wanted, Tensor):
                return found.to(wanted.dtype)
            return tuple(v.to(w.dtype) for v, w in zip(found, wanted, strict=True))

        return traced(computed)(editor, node)

    return rule


def _single(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float32 else x.to(torch.float32)


def as_tensor(value: Tensor | float, *beside: Any) -> Tensor:
    """A number as a float32 tensor that broadcasts against those beside it: of one axis if they
    have any, since runtimes do more with axes than without."""
    if isinstance(value, Tensor):
        return value
    axes = any(isinstance(item, Tensor) and item.dim() for item in beside)
    return torch.full((1,) if axes else (), value, dtype=torch.float32)


def choose(condition: Tensor, chosen: Tensor | float, other: Tensor | float) -> Tensor:
    """`where` with numbers allowed on either side."""
    first = as_tensor(chosen, condition, other)
    return torch.where(condition, first, as_tensor(other, condition, chosen))


def divided(above: float, below: Tensor) -> Tensor:
    """A true division of a number: torch would write `1 / x` as a reciprocal."""
    return torch.div(as_tensor(above, below), below)


def is_nan(x: Tensor) -> Tensor:
    """NaN alone differs from itself."""
    return torch.ne(x, x)


def log(x: Tensor) -> Tensor:
    """The logarithm, -inf at zero."""
    zero = x == 0
    return choose(zero, -INF, torch.log(choose(zero, 1.0, x)))


def has_sign(x: Tensor) -> Tensor:
    """Whether the sign bit is set: that of -0.0 shows in its inverse. A NaN has none here."""
    zero = x == 0
    return torch.logical_or(x < 0, divided(1.0, choose(zero, x, 1.0)) < 0)


def mirrored(x: Tensor, positive: Tensor) -> Tensor:
    """An odd function from what it is at |x|; a zero and a NaN keep what they are."""
    return choose(x < 0, -positive, choose(x == 0, x, positive))


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Horner's rule, the highest power first."""
    found: Tensor = x * coefficients[0] + coefficients[1]
    for number in coefficients[2:]:
        found = found * x + number
    return found


def quotient(x: Tensor, above: Sequence[float], below: Sequence[float]) -> Tensor:
    """A rational function, the highest powers first."""
    return polynomial(x, above) / polynomial(x, below)


def chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Clenshaw's rule for a series in T_n(x / 2), the highest first and half of the last counted.

    The order and the halves are those of Cephes' `chbevl`.
    """
    before: Tensor | float = coefficients[0]
    b: Tensor = x * coefficients[0] + coefficients[1]
    for number in coefficients[2:-1]:
        b, before = x * b - before + number, b
    return (x * b - before * 2.0 + coefficients[-1]) * 0.5
