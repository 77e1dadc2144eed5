"""16-bit floats are computed in float32 and rounded once; what else the families share."""

from __future__ import annotations

import functools

import torch

from .call import Call, Operator

__all__ = ["known", "require_floats", "require_room", "wide", "widened"]

_HALVES = (torch.float16, torch.bfloat16)


def wide(value: torch.Tensor) -> torch.Tensor:
    """float32 of a 16-bit float, every other dtype as it is."""
    return value.to(torch.float32) if value.dtype in _HALVES else value


def widened(operator: Operator) -> Operator:
    """`operator` on widened inputs, its float32 results rounded to the declared 16-bit dtypes."""

    @functools.wraps(operator)
    def run(call: Call) -> torch.Tensor | tuple[torch.Tensor, ...]:
        call.inputs = tuple(None if value is None else wide(value) for value in call.inputs)
        result = operator(call)
        if isinstance(result, tuple):
            return tuple(_narrow(call, index, value) for index, value in enumerate(result))
        return _narrow(call, 0, result)

    return run


def _narrow(call: Call, index: int, value: torch.Tensor) -> torch.Tensor:
    if value.dtype != torch.float32 or index >= len(call.layer.outputs):
        return value
    declared = call.result_dtype(index)
    return value.to(declared) if declared in _HALVES else value


def require_floats(call: Call, *values: torch.Tensor | None) -> None:
    """Refuse integers and booleans where only floats are documented."""
    for value in values:
        if value is not None and value.dtype != torch.float32:
            call.refuse(f"it computes with {str(value.dtype).removeprefix('torch.')}")


def known(call: Call, *values: torch.Tensor) -> None:
    """Refuse NaN where values are compared: what a comparison with NaN picks is not documented."""
    for value in values:
        if value.is_floating_point() and bool(value.isnan().any()):
            call.refuse("it compares NaN")


def require_room(call: Call, result: torch.Tensor, exact: torch.Tensor) -> None:
    """Refuse integers that overflow: what comes out then is not documented.

    Args:
        result: what the layer gives, wrapped; floats have no limit here.
        exact: the same in float64. A wrap moves a value by 2^32 or 2^64, far more than the
            rounding of float64 does.
    """
    if result.is_floating_point():
        return
    far = (result.double() - exact).abs()
    if bool((far > 2.0 ** (torch.iinfo(result.dtype).bits - 2)).any()):
        call.refuse("an integer overflows")
