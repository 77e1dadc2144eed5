"""Reductions over axes, and the cumulative sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .axes import named_axes
from .call import Call, Operator
from .elementwise import FLOATS, INT32, NUMBERS, narrowed, of_dtype, refuse_nan
from .sums import mean, total

__all__ = ["OPERATORS"]

_IOS17 = 7
_Function = Callable[[torch.Tensor], torch.Tensor]


def _reduced(call: Call) -> tuple[torch.Tensor, list[int], bool]:
    """`x`, the axes counted from the front, and whether they stay with length 1."""
    x = of_dtype(call, "x", NUMBERS)
    if not x.dim():
        call.refuse("x of rank 0, where rank 1 or more is documented")
    keep = call.flag("keep_dims", False)
    axes = named_axes(call, x.dim())
    return x, axes, keep


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _by_sum(before: _Function = _same, after: _Function = _same) -> Operator:
    """`after(sum(before(x)))`, float or integer; an integer result that is none is refused."""

    def operator(call: Call) -> torch.Tensor:
        x, axes, keep = _reduced(call)
        if x.dtype == torch.int32:
            return _whole(call, after(before(x.double()).sum(axes, keepdim=keep)))
        kept = _kept(call, x)
        return after(total(before(x.float()), axes, kept, keep)).to(x.dtype)

    return operator


def _kept(call: Call, x: torch.Tensor) -> torch.dtype:
    return call.accumulate if x.dtype == torch.float16 else torch.float32


def _whole(call: Call, exact: torch.Tensor) -> torch.Tensor:
    """A float64 result as int32; how a fraction is rounded is not documented."""
    if bool((exact != exact.floor()).any()) or not bool(torch.isfinite(exact).all()):
        call.refuse("integers whose result is a fraction")
    if bool(((exact < INT32.min) | (exact > INT32.max)).any()):
        call.refuse("a value outside int32")
    return exact.int()


def _mean(call: Call) -> torch.Tensor:
    x, axes, keep = _reduced(call)
    if x.dtype == torch.int32:
        return _whole(call, x.double().mean(axes, keepdim=keep))
    return mean(x.float(), axes, _kept(call, x), keep).to(x.dtype)


def _prod(call: Call) -> torch.Tensor:
    x, axes, keep = _reduced(call)
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    wide = x.double().permute(*rest, *axes).flatten(len(rest)).prod(-1)
    for axis in sorted(axes) if keep else ():
        wide = wide.unsqueeze(axis)
    return _whole(call, wide) if x.dtype == torch.int32 else wide.to(x.dtype)


def _extreme(largest: bool) -> Operator:
    def operator(call: Call) -> torch.Tensor:
        x, axes, keep = _reduced(call)
        _refuse_none(call, x, axes)
        refuse_nan(call, x)
        return (torch.amax if largest else torch.amin)(x, axes, keepdim=keep)

    return operator


def _refuse_none(call: Call, x: torch.Tensor, axes: list[int]) -> None:
    if not math.prod(x.shape[axis] for axis in axes):
        call.refuse("no element to choose from")


def _log_sum_exp(call: Call) -> torch.Tensor:
    x, axes, keep = _reduced(call)
    if x.dtype not in FLOATS:
        call.refuse("integers whose result is a fraction")
    if call.accumulate == torch.float32 or x.dtype == torch.float32 or not x.numel():
        return torch.logsumexp(x.float(), axes, keepdim=keep).to(x.dtype)
    # Documented as more stable than log(sum(exp(x))): the largest is taken out.
    top = x.float().amax(axes, keepdim=True)
    top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
    powers = torch.exp(x.float() - top).half().float()
    found = total(powers, axes, call.accumulate, keepdim=True).log() + top
    return (found if keep else found.squeeze(axes)).half()


def _arg(largest: bool) -> Operator:
    """The documentation does not promise which index a tie gives."""

    def operator(call: Call) -> torch.Tensor:
        x = of_dtype(call, "x", NUMBERS)
        axis = call.integer("axis", -1)
        keep = call.flag("keep_dims", False)
        wanted = "int32"
        if call.opset >= _IOS17:
            wanted = call.text("output_dtype", "int32", ("int32", "uint16"))
        if not -x.dim() <= axis < x.dim():
            raise call.damaged(f"axis {axis} of a tensor of rank {x.dim()}")
        if wanted == "uint16" and x.shape[axis] > 2**16:
            call.refuse("an index that uint16 may not hold")
        _refuse_none(call, x, [axis])
        refuse_nan(call, x)
        found = (torch.amax if largest else torch.amin)(x, axis, keepdim=True)
        if bool(((x == found).sum(axis) > 1).any()):
            call.refuse("a tie")
        # Both int32 and uint16 are held as int32 here.
        return (torch.argmax if largest else torch.argmin)(x, axis, keepdim=keep).int()

    return operator


def _cumsum(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", NUMBERS)
    axis = call.integer("axis", 0)
    exclusive, reverse = call.flag("exclusive", False), call.flag("reverse", False)
    if not -x.dim() <= axis < x.dim():
        raise call.damaged(f"axis {axis} of a tensor of rank {x.dim()}")
    terms = x.flip(axis) if reverse else x
    if exclusive:
        terms = torch.cat(
            (torch.zeros_like(terms.narrow(axis, 0, min(1, terms.shape[axis]))), terms), axis
        ).narrow(axis, 0, x.shape[axis])
    if x.dtype == torch.int32:
        sums = narrowed(call, terms.long().cumsum(axis))
    elif _kept(call, x) == torch.float32:
        sums = terms.float().cumsum(axis).to(x.dtype)
    else:
        sums = _running(terms, axis)
    return sums.flip(axis) if reverse else sums


def _running(terms: torch.Tensor, axis: int) -> torch.Tensor:
    """Running float16 sums: every one is an output, so every one is rounded."""
    sums: list[torch.Tensor] = []
    for term in terms.unbind(axis):
        sums.append(term if not sums else sums[-1] + term)
    return torch.stack(sums, axis) if sums else terms


OPERATORS: dict[str, Operator] = {
    "cumsum": _cumsum,
    "reduce_argmax": _arg(largest=True),
    "reduce_argmin": _arg(largest=False),
    "reduce_l1_norm": _by_sum(before=torch.abs),
    "reduce_l2_norm": _by_sum(before=torch.square, after=torch.sqrt),
    "reduce_log_sum": _by_sum(after=torch.log),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_max": _extreme(largest=True),
    "reduce_mean": _mean,
    "reduce_min": _extreme(largest=False),
    "reduce_prod": _prod,
    "reduce_sum": _by_sum(),
    "reduce_sum_square": _by_sum(before=torch.square),
}
