"""Operators that decide: where a last digit can change an index, an order or a branch."""

from __future__ import annotations

import math
import zlib
from typing import Any

import torch
from torch.fx import GraphModule

__all__ = [
    "as_ordered",
    "blur_quotients",
    "break_ties",
    "decides",
    "first_blurred",
    "operator_name",
    "picks",
]

# They order values; elements that are exactly equal may come in any order.
_ORDERING = frozenset(
    (
        *("argmax", "argmin", "argsort", "kthvalue", "max", "median", "min", "mode", "msort"),
        *("nanmedian", "sort", "topk", "cummax", "cummin", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool1d_with_indices"),
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "fractional_max_pool2d"),
    )
)

# Of equal whole numbers torch promises no order here; argmax, say, promises the first.
_UNORDERED = frozenset(("argsort", "kthvalue", "median", "msort", "nanmedian", "sort", "topk"))

# They turn a float into something that jumps.
_JUMPING = frozenset(
    (
        *("bucketize", "ceil", "eq", "floor", "floor_divide", "fmod", "ge", "gt", "heaviside"),
        *("le", "lt", "ne", "remainder", "round", "searchsorted", "sign", "trunc"),
    )
)

# They jump at a quotient that they round themselves, so that even exact arguments leave it open.
_DIVIDING = frozenset(
    (
        *("floor_divide", "fmod", "remainder", "fake_quantize_per_tensor_affine"),
        *("fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine_cachemask"),
        *("fake_quantize_per_channel_affine_cachemask", "quantize_per_tensor"),
        *("quantize_per_channel", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    )
)

# Their results are among their arguments, or exact: no evaluation rounds them.
_PICKING = frozenset(
    (
        *("abs", "amax", "amin", "cat", "ceil", "channel_shuffle", "clamp", "clamp_max"),
        *("clamp_min", "clone", "constant_pad_nd", "contiguous", "embedding", "flip", "floor"),
        *("full_like", "gather", "hardtanh", "im2col", "index", "index_put", "index_select"),
        *("masked_fill", "masked_scatter", "max_pool1d", "max_pool2d", "max_pool3d", "maximum"),
        *("minimum", "neg", "ones_like", "pad", "pixel_shuffle", "pixel_unshuffle"),
        *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu", "relu6", "repeat"),
        *("repeat_interleave", "replication_pad1d", "replication_pad2d", "replication_pad3d"),
        *("roll", "round", "scatter", "sign", "stack", "take", "take_along_dim", "threshold"),
        *(
            "tril",
            "triu",
            "trunc",
            "upsample_nearest1d",
            "upsample_nearest2d",
            "where",
            "zeros_like",
        ),
    )
)

_CASTS = frozenset(("_to_copy", "to", "type_as"))

# The least share of a unit in the last place that still tells two equal values apart.
_LEAST_ULPS = 4.0

# Whole numbers up to here have room for fractions beside them in float64.
_EXACT = 2**50

# Far below any value that matters, far above what float32 flushes to zero.
_BESIDE_ZERO = 2.0**-100


def operator_name(target: Any) -> str:
    """An operator's name without its namespace and overload; empty for what is no operator."""
    return getattr(getattr(target, "overloadpacket", None), "__name__", "")


def decides(module: GraphModule) -> bool:
    """Whether the graph holds an operator that makes a decision from float values."""
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, GraphModule) else ():
            name = operator_name(node.target)
            if name not in _ORDERING | _JUMPING | _CASTS or not node.all_input_nodes:
                continue
            source = node.all_input_nodes[0].meta.get("val")
            result = node.meta.get("val")
            if not isinstance(source, torch.Tensor):
                continue
            if not source.is_floating_point() and name not in _UNORDERED:
                continue
            to_integer = isinstance(result, torch.Tensor) and not result.is_floating_point()
            if name not in _CASTS or to_integer:
                return True
    return False


def break_ties(
    target: Any, args: tuple[Any, ...], kwargs: Any, key: str, ulps: float, sign: int
) -> Any:
    """Arguments of an ordering operator, the values moved so that equal ones differ.

    Each element moves by a random share of `ulps` units in the last place, and
    by as little beside zero; the opposite `sign` orders every tie the other way.
    Infinities, as masks put them, become numbers beyond all others, and whole numbers become
    floats near them; see `as_ordered`. A sort that promises to be stable has one order.
    """
    if operator_name(target) not in _ORDERING or not args or kwargs.get("stable"):
        return args
    values = args[0]
    if not isinstance(values, torch.Tensor) or values.is_complex():
        return args
    if not values.is_floating_point():
        whole = values.to(torch.float64)
        if operator_name(target) not in _UNORDERED or bool((whole.abs() > _EXACT).any()):
            return args
        return (whole + _shares(whole, key) * (0.8 * sign), *args[1:])
    share = _shares(values, key) * sign
    moved = _blurred(values, share, max(ulps, _LEAST_ULPS))
    far = values.sign() * torch.finfo(values.dtype).max * (0.75 + 0.5 * share)  # half of it or more
    return (torch.where(values.isinf(), far, moved), *args[1:])


def as_ordered(target: Any, args: tuple[Any, ...], value: Any) -> Any:
    """A result of an ordering operator as it is of `args`, which `break_ties` moved.

    Infinite where it was, and whole where they are.
    """
    if operator_name(target) not in _ORDERING or not args or not isinstance(args[0], torch.Tensor):
        return value
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    if not args[0].is_floating_point():
        return value.round().to(args[0].dtype)
    if not bool(args[0].isinf().any()):
        return value
    far = value.abs() >= torch.finfo(value.dtype).max / 2
    return torch.where(far, value.sign() * math.inf, value)


def blur_quotients(
    target: Any, args: tuple[Any, ...], kwargs: Any, key: str, ulps: float, sign: int
) -> Any:
    """Arguments of an operator that rounds a quotient of its own, the dividend moved a little."""
    divides = operator_name(target) in _DIVIDING or (
        operator_name(target) == "div" and kwargs.get("rounding_mode") is not None
    )
    return first_blurred(args, key, max(ulps, _LEAST_ULPS), sign) if divides else args


def picks(target: Any) -> bool:
    """Whether an operator's results are among its arguments or otherwise free of rounding."""
    name = operator_name(target)
    return name in _PICKING or name in _CASTS or name in _ORDERING


def first_blurred(args: tuple[Any, ...], key: str, ulps: float, sign: int) -> tuple[Any, ...]:
    """Arguments of which the first is moved, where it holds floats; zeros a little too."""
    values = args[0] if args else None
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        return args
    return (_blurred(values, _shares(values, key) * sign, 2 * ulps), *args[1:])


def _shares(values: torch.Tensor, key: str) -> torch.Tensor:
    """A random number from -0.5 to 0.5 for each element."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    return torch.rand(values.shape, generator=generator, dtype=values.dtype) - 0.5


def _blurred(values: torch.Tensor, share: torch.Tensor, ulps: float) -> torch.Tensor:
    reach = values.abs() * (torch.finfo(values.dtype).eps * ulps) + _BESIDE_ZERO
    return torch.where(values.isfinite(), values + share * reach, values)
