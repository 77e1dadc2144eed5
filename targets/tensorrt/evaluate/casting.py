"""Conversions between dtypes."""

from __future__ import annotations

import torch

from .call import Call, Operator, torch_dtype
from .widening import wide

__all__ = ["OPERATORS"]

_INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _cast(call: Call) -> torch.Tensor:
    return _converted(call, call.tensor(), torch_dtype(call.value("to_type"), call))


def _identity(call: Call) -> torch.Tensor:
    """The same values, in the dtype that the output declares."""
    return _converted(call, call.tensor(), call.result_dtype())


def _converted(call: Call, value: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    """Floats are rounded to the nearest, and truncated toward zero to integers.

    What does not fit an integer is refused: for uint8 it is documented to be undefined, for others
    nothing is said. Anything of magnitude 1 and more is True; a smaller fraction is refused, as
    it is not said whether it is truncated first.
    """
    source = value.dtype
    if source == target:
        return value
    known = (torch.bool, *_INTEGERS, *_FLOATS)
    if source not in known or target not in known:
        call.refuse(f"a conversion from {source} to {target}")
    if target == torch.bool:
        if source in _FLOATS and bool(((value != 0) & ~(value.abs() >= 1)).any()):
            call.refuse("a conversion of a fraction or NaN to bool")
        return value != 0
    if target in _INTEGERS and source != torch.bool:
        _require_room(call, value, target)
        return (wide(value).trunc() if source in _FLOATS else value).to(target)
    return value.to(target)


def _require_room(call: Call, value: torch.Tensor, target: torch.dtype) -> None:
    limits = torch.iinfo(target)
    if not value.numel():
        return
    if value.dtype in _FLOATS:
        whole = wide(value).trunc()
        # One beyond the largest is a power of two, so that float32 holds it exactly.
        fits = (whole >= limits.min) & (whole < float(limits.max + 1))
    elif torch.iinfo(value.dtype).min >= limits.min and torch.iinfo(value.dtype).max <= limits.max:
        return
    else:
        low, high = max(limits.min, torch.iinfo(value.dtype).min), limits.max
        fits = (value >= low) & (value <= min(high, torch.iinfo(value.dtype).max))
    if not bool(fits.all()):
        call.refuse(f"a conversion to {target} of what does not fit")


OPERATORS: dict[str, Operator] = {"CAST": _cast, "IDENTITY": _identity}
