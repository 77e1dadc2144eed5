"""Whole numbers in forms that the CPU plug-in computes exactly.

OpenVINO 2026.4.1 computes int64 in int32, and of int32 only add, subtract, multiply, minimum,
maximum, abs, cumulative sums, sorting and what moves values. The rest it computes in float32,
which holds whole numbers up to 2^24 alone: division, remainder, comparison, choice, clamp,
sums, extremes, powers. Arithmetic on 8 bits saturates where torch wraps around, and on
16 bits does not wrap before the output.

Rules as in `faults`: a node of the decomposed program in, its replacement out, None where the
node is right as it is.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import Editor, argument, tensor_value

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["INTEGER_RULES", "inexact", "whole_division", "whole_remainder"]

aten = torch.ops.aten

_WIDE = (torch.int32, torch.int64)
_NARROW = (torch.int8, torch.uint8, torch.int16)
_EXACT = 2**24  # float32 holds every whole number up to here
_LESS = 1 - 2.0**-20


class _Terms:
    """Writes operators before one node, as arithmetic."""

    def __init__(self, editor: Editor, node: Node) -> None:
        self._editor, self._node = editor, node

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        return self._editor.call(self._node, target, *args, **kwargs)

    def tensor(self, item: Any, dtype: torch.dtype) -> Any:
        value = tensor_value(item)
        if value is None:
            full = self._node.meta["val"].new_full([], item, dtype=dtype)
            return self(aten.full.default, [], item, dtype=dtype, value=full)
        return item if value.dtype == dtype else self(aten._to_copy.default, item, dtype=dtype)

    def cast(self, item: Any, dtype: torch.dtype) -> Node:
        return self(aten._to_copy.default, item, dtype=dtype)

    def choose(self, condition: Any, x: Any, y: Any, dtype: torch.dtype) -> Node:
        """`where`, without a Select: y + (x - y) * condition, which may wrap there and back."""
        picked = self(aten.mul.Tensor, self(aten.sub.Tensor, x, y), self.cast(condition, dtype))
        return self(aten.add.Tensor, y, picked)

    def less(self, x: Any, y: Any) -> Node:
        """x < y: the lesser is not y. A difference is 0 only of equals, even if it wraps."""
        lesser = self(aten.minimum.default, x, y)
        return self(aten.ne.Scalar, self(aten.sub.Tensor, lesser, y), 0)

    def magnitudes(self, a: Any, b: Any) -> tuple[Node, Node]:
        """Minus `|a| // |b|` and minus its remainder. The negatives hold the least number too.

        Each estimate of the quotient is made in float32 and too small, so that what is left
        stays in range: after two of them less than twice the divisor.
        """
        left, divisor = (
            self(aten.minimum.default, item, self(aten.neg.default, item)) for item in (a, b)
        )
        dtype = left.meta["val"].dtype
        below = self(aten.mul.Scalar, self.cast(divisor, torch.float32), 1 / _LESS)
        quotient = None
        for _ in range(2):
            ratio = self(aten.div.Tensor, self.cast(left, torch.float32), below)
            part = self.cast(self(aten.floor.default, ratio), dtype)
            left = self(aten.sub.Tensor, left, self(aten.mul.Tensor, part, divisor))
            quotient = part if quotient is None else self(aten.add.Tensor, quotient, part)
        short = self(aten.logical_not.default, self.less(divisor, left))
        once = self.cast(short, dtype)
        left = self(aten.sub.Tensor, left, self(aten.mul.Tensor, once, divisor))
        quotient = self(aten.add.Tensor, quotient, once)
        return self(aten.neg.default, quotient), left

    def truncated(self, a: Any, b: Any, dtype: torch.dtype) -> tuple[Node, Node]:
        """Quotient towards zero, and the remainder with the sign of `a`."""
        quotient, rest = self.magnitudes(a, b)
        minus_a, minus_b = (self(aten.lt.Scalar, item, 0) for item in (a, b))
        differ = self(aten.logical_xor.default, minus_a, minus_b)
        return (
            self.choose(differ, quotient, self(aten.neg.default, quotient), dtype),
            self.choose(minus_a, rest, self(aten.neg.default, rest), dtype),
        )

    def beyond(self, rest: Any, b: Any) -> Node:
        """Where a remainder is not 0 and has another sign than the divisor."""
        signs = (self(aten.lt.Scalar, item, 0) for item in (rest, b))
        return self(
            aten.logical_and.default,
            self(aten.ne.Scalar, rest, 0),
            self(aten.logical_xor.default, *signs),
        )

    def wrapped(self, item: Any, dtype: torch.dtype) -> Node:
        """int32 as a narrower dtype holds it: its low bits, with their sign."""
        info = torch.iinfo(dtype)
        low: Node = self(
            aten.bitwise_and.Tensor, item, self.tensor((1 << info.bits) - 1, torch.int32)
        )
        if info.min < 0:
            top = self.tensor(-info.min, torch.int32)
            high = self(aten.ge.Scalar, low, -info.min)
            turn = self(aten.mul.Tensor, self.cast(high, torch.int32), top)
            low = self(aten.sub.Tensor, self(aten.sub.Tensor, low, turn), turn)
        return self.cast(low, dtype)


def _whole(node: Node) -> torch.dtype | None:
    value = tensor_value(node)
    kinds = (*_WIDE, *_NARROW)
    return value.dtype if value is not None and value.dtype in kinds else None


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.int32 if dtype in _NARROW else dtype


def _division(editor: Editor, node: Node, floors: bool, remainder: bool) -> Any:
    dtype = _whole(node)
    if dtype is None:
        return None
    terms, wide = _Terms(editor, node), _computed_in(dtype)
    a, b = (terms.tensor(terms.tensor(item, dtype), wide) for item in node.args[:2])
    quotient, rest = terms.truncated(a, b, wide)
    if floors:
        beyond = terms.cast(terms.beyond(rest, b), wide)
        quotient = terms(aten.sub.Tensor, quotient, beyond)
        rest = terms(aten.add.Tensor, rest, terms(aten.mul.Tensor, beyond, b))
    result = rest if remainder else quotient
    if wide != dtype:
        return terms.cast(result, dtype)
    return result


def whole_division(editor: Editor, node: Node) -> Any:
    """`//` and `div` with a rounding mode."""
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    floors = "rounding_mode" not in names or argument(node, "rounding_mode") == "floor"
    return _division(editor, node, floors, remainder=False)


def whole_remainder(editor: Editor, node: Node) -> Any:
    """`%`, and `fmod`."""
    target: Any = node.target
    floors = target.overloadpacket is aten.remainder
    return _division(editor, node, floors, remainder=True)


def _comparison(editor: Editor, node: Node) -> Any:
    """A comparison of wide numbers, unless with one that float32 holds: rounding keeps order."""
    x: Any = node.args[0]
    y: Any = node.args[1]
    values = [tensor_value(x), tensor_value(y)]
    if any(v is None and abs(i) <= _EXACT for v, i in zip(values, (x, y), strict=True)):
        return None
    dtypes = {value.dtype for value in values if value is not None}
    if not dtypes & set(_WIDE) or not dtypes <= {*_WIDE, *_NARROW}:
        return None
    if isinstance(y, float):
        return None
    dtype = torch.int64 if torch.int64 in dtypes else torch.int32
    terms = _Terms(editor, node)
    x, y = terms.tensor(x, dtype), terms.tensor(y, dtype)
    target: Any = node.target
    name = target.overloadpacket.__name__
    if name in ("eq", "ne"):
        difference = terms(aten.sub.Tensor, x, y)
        return terms(getattr(aten, name).Scalar, difference, 0, value=node.meta["val"])
    if name in ("gt", "le"):
        x, y = y, x
    less = terms.less(x, y)
    return less if name in ("lt", "gt") else terms(aten.logical_not.default, less)


def _choice(editor: Editor, node: Node) -> Any:
    dtype = _whole(node)
    if dtype not in _WIDE:
        return None
    terms = _Terms(editor, node)
    condition, x, y = node.args
    x, y = terms.tensor(x, dtype), terms.tensor(y, dtype)
    return terms.choose(condition, x, y, dtype)


def _filling(editor: Editor, node: Node) -> Any:
    dtype = _whole(node)
    if dtype not in _WIDE:
        return None
    terms = _Terms(editor, node)
    y, condition, x = node.args
    return terms.choose(condition, terms.tensor(x, dtype), y, dtype)


def _clamp(editor: Editor, node: Node) -> Any:
    dtype, result = _whole(node), node.args[0]
    if dtype not in _WIDE:
        return None
    terms = _Terms(editor, node)
    low, high = argument(node, "min"), argument(node, "max")
    if all(isinstance(item, int) and abs(item) <= _EXACT for item in (low, high)):
        return None
    if low is not None:
        result = terms(aten.maximum.default, result, terms.tensor(low, dtype))
    if high is not None:
        # A sum between keeps the two from being fused into a Clamp, which is a float's.
        zero = terms(aten.sub.Tensor, node.args[0], node.args[0])
        result = terms(aten.add.Tensor, result, zero)
        result = terms(aten.minimum.default, result, terms.tensor(high, dtype))
    return result


def _axes(node: Node, rank: int) -> list[int]:
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    given: Any = argument(node, "dim") if "dim" in names else None
    axes = [given] if isinstance(given, int) else list(given or range(rank))
    return sorted(axis % rank for axis in axes)


def _reduced(editor: Editor, node: Node, step: Any) -> Any:
    """One axis after the other by `step`, which keeps the axis with one element."""
    value, dtype = tensor_value(node.args[0]), _whole(node)
    if value is None or value.dtype not in _WIDE or dtype not in _WIDE or not value.dim():
        return None
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    keeps = "keepdim" in names and argument(node, "keepdim")
    terms = _Terms(editor, node)
    axes, result = _axes(node, value.dim()), terms.tensor(node.args[0], dtype)
    for axis in axes:
        result = step(terms, result, axis)
    for axis in [] if keeps else reversed(axes):
        result = terms(aten.squeeze.dims, result, [axis])
    return result


def _sum(editor: Editor, node: Node) -> Any:
    def last(terms: _Terms, x: Any, axis: int) -> Node:
        sums = terms(aten.cumsum.default, x, axis)
        return terms(aten.slice.Tensor, sums, axis, -1, 2**63 - 1)

    return _reduced(editor, node, last)


def _extreme(editor: Editor, node: Node) -> Any:
    target: Any = node.target
    largest = target.overloadpacket is not aten.amin and target is not aten.min.default

    def one(terms: _Terms, x: Any, axis: int) -> Node:
        return terms(operator.getitem, terms(aten.topk.default, x, 1, axis, largest), 0)

    return _reduced(editor, node, one)


def _extreme_along(editor: Editor, node: Node) -> Any:
    """`max` and `min` along an axis, of wide numbers, by sorting."""
    value = tensor_value(node.args[0])
    if value is None or value.dtype not in _WIDE or not value.dim():
        return None
    target: Any = node.target
    axis, terms = argument(node, "dim"), _Terms(editor, node)
    pair = terms(aten.topk.default, node.args[0], 1, axis, target is aten.max.dim)
    found = [terms(operator.getitem, pair, at) for at in (0, 1)]
    if argument(node, "keepdim"):
        return found
    return [terms(aten.squeeze.dims, item, [axis]) for item in found]


def _power(editor: Editor, node: Node) -> Any:
    dtype, times = _whole(node), node.args[1]
    if dtype not in _WIDE or not isinstance(times, int) or not 2 <= times <= 8:
        return None
    terms, result = _Terms(editor, node), node.args[0]
    for _ in range(times - 1):
        result = terms(aten.mul.Tensor, result, node.args[0])
    return result


def _to_bool(editor: Editor, node: Node) -> Any:
    """A cast to bool, which takes the least number for 0."""
    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or x.dtype not in _WIDE or result is None or result.dtype != torch.bool:
        return None
    return editor.call(node, aten.ne.Scalar, node.args[0], 0, value=result)


def _wrapping(editor: Editor, node: Node) -> Any:
    """Arithmetic on narrow numbers in int32, then wrapped around."""
    dtype, target = _whole(node), node.target
    if dtype not in _NARROW:
        return None
    terms = _Terms(editor, node)
    args = [terms.tensor(i, torch.int32) if tensor_value(i) is not None else i for i in node.args]
    wide = terms(target, *args, **node.kwargs)
    return terms.wrapped(wide, dtype)


def inexact(node: Node) -> str:
    """Why whole numbers come out wrong for which there is no exact form here; empty if not."""
    if _whole(node) is None:
        return ""
    if node.target in (aten.prod.default, aten.prod.dim_int, aten.pow.Tensor_Tensor):
        return "OpenVINO multiplies up whole numbers in float32, which holds them up to 2^24"
    if node.target is aten.pow.Tensor_Scalar and node.args[1] not in (0, 1):
        return "OpenVINO takes powers of whole numbers in float32; multiply, or cast before"
    return ""


_COMPARISONS = [aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge]

INTEGER_RULES: dict[Any, Any] = {
    **{
        getattr(packet, kind): _comparison
        for packet in _COMPARISONS
        for kind in ("Tensor", "Scalar")
    },
    **dict.fromkeys((aten.remainder.Tensor, aten.remainder.Scalar), whole_remainder),
    **dict.fromkeys((aten.fmod.Tensor, aten.fmod.Scalar), whole_remainder),
    aten._to_copy.default: _to_bool,
    aten.where.self: _choice,
    **dict.fromkeys((aten.masked_fill.Scalar, aten.masked_fill.Tensor), _filling),
    **dict.fromkeys((aten.clamp.default, aten.clamp.Tensor), _clamp),
    **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList), _sum),
    **dict.fromkeys((aten.amax.default, aten.amin.default), _extreme),
    **dict.fromkeys((aten.max.default, aten.min.default), _extreme),
    **dict.fromkeys((aten.max.dim, aten.min.dim), _extreme_along),
    aten.pow.Tensor_Scalar: _power,
    **dict.fromkeys((aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor), _wrapping),
    **dict.fromkeys((aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar), _wrapping),
    **dict.fromkeys((aten.neg.default, aten.rsub.Scalar), _wrapping),
}
