"""Sums of equal values: their rounding errors are equal too, and add up instead of cancelling.

A sum of a constant image is off by far more than one of noise, and a norm subtracts all but that.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .decisions import first_blurred, operator_name

__all__ = ["blur_centred", "summing_ulps"]

# A runtime adds in some sixteen partial sums. Each addition loses up to half a unit in the last
# place, always the same way where the values are the same; about a quarter of that is usual. Where
# they differ most of it cancels, and only sums of very many elements show.
_ADDITIONS_PER_ULP = 128
_ADDITIONS_PER_ULP_AT_RANDOM = 2048
_LEAST_AT_RANDOM = 4.0

# They subtract a mean that they take themselves: of equal values nothing remains but rounding.
_CENTRING = frozenset(
    (
        *("group_norm", "instance_norm", "layer_norm", "native_group_norm", "native_layer_norm"),
        *("native_batch_norm", "_native_batch_norm_legit", "std", "std_mean", "var", "var_mean"),
    )
)

# Their results are sums of many elements.
_ACCUMULATING = frozenset(
    (
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "cumsum"),
        *("linalg_vector_norm", "logsumexp", "mean", "norm", "std", "std_mean", "sum", "var"),
        *("var_mean",),
    )
)


def blur_centred(target: Any, args: tuple[Any, ...], key: str, ulps: float, sign: int) -> Any:
    """Arguments of an operator that subtracts a mean of its own, the values moved a little.

    With `ulps` of 0 the values differ from each other.
    """
    if operator_name(target) not in _CENTRING or not args or not isinstance(args[0], torch.Tensor):
        return args
    shape = args[0].shape
    count = math.prod(shape[2:]) if len(shape) > 2 else math.prod(shape[-1:])
    if not ulps:
        ulps = count / _ADDITIONS_PER_ULP_AT_RANDOM
        return first_blurred(args, key, ulps, sign) if ulps >= _LEAST_AT_RANDOM else args
    return first_blurred(args, key, max(ulps, count / _ADDITIONS_PER_ULP), sign)


def summing_ulps(target: Any, args: tuple[Any, ...], result: Any, ulps: float) -> float:
    """How far a sum of many elements may be off, at least `ulps`; 0 for other operators."""
    first = result[0] if isinstance(result, tuple) else result
    if operator_name(target) not in _ACCUMULATING or not isinstance(first, torch.Tensor):
        return 0.0
    count: float = args[0].numel() / max(first.numel(), 1)
    return max(ulps, count / _ADDITIONS_PER_ULP)
