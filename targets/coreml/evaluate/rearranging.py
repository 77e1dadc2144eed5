"""Padding, and blocks of an image moved between space, depth and batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import torch
from torch.nn import functional

from .axes import affordable, bounded
from .call import Call, Operator
from .elementwise import FLOATS, image, of_dtype
from .readings import agreed

__all__ = ["OPERATORS"]


def pad(call: Call) -> torch.Tensor:
    """x with pads before and after its last dimensions."""
    x = of_dtype(call, "x", FLOATS)
    pads = call.integers("pad")
    mode = call.text("mode", "constant", choices=("constant", "reflect", "replicate"))
    value = call.number("constant_val", 0.0)
    if len(pads) % 2 or len(pads) > 2 * x.dim():
        raise call.damaged(f"{len(pads)} pads for a rank of {x.dim()}")
    if min(pads, default=0) < 0:
        call.refuse("a negative pad")
    kept, ends = x.dim() - len(pads) // 2, zip(pads[::2], pads[1::2], strict=True)
    affordable(
        call,
        [*x.shape[:kept], *(n + sum(pair) for n, pair in zip(x.shape[kept:], ends, strict=True))],
    )
    for axis, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        dim = x.dim() - len(pads) // 2 + axis
        size = x.shape[dim]
        if mode != "constant" and (before or after):
            limit = size - 1 if mode == "reflect" else size
            if max(before, after) > limit:
                call.refuse(f"{mode} of {max(before, after)} on a dimension of {size}")
            index = torch.arange(-before, size + after)
            if mode == "replicate":
                index = index.clamp(0, size - 1)
            else:
                index = size - 1 - (size - 1 - index.abs()).abs()
            x = x.index_select(dim, index)
    if mode == "constant":
        pairs = [pads[i : i + 2] for i in range(0, len(pads), 2)]
        x = functional.pad(x, [amount for pair in reversed(pairs) for amount in pair], value=value)
    return x


def pixel_shuffle(call: Call) -> torch.Tensor:
    """[n, C * f^2, H, W] to [n, C, H * f, W * f], as PyTorch does."""
    x, factor = image(call), call.integer("upscale_factor")
    _divides(call, factor * factor, x.shape[1])
    blocks: torch.Tensor = x.unflatten(1, (-1, factor, factor))
    return blocks.permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)


def pixel_unshuffle(call: Call) -> torch.Tensor:
    """[n, C, H * f, W * f] to [n, C * f^2, H, W], as PyTorch does."""
    x, factor = image(call), call.integer("downscale_factor")
    return _blocks(call, x, factor, factor).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def depth_to_space(call: Call) -> torch.Tensor:
    """[n, C * b^2, H, W] to [n, C, H * b, W * b]; the order of the channels is not documented."""
    x, block = image(call), call.integer("block_size")
    _divides(call, block * block, x.shape[1])
    channels = x.shape[1] // (block * block)
    sizes = {"b": block, "w": block, "c": channels}
    return agreed(
        call,
        "the order of the channels",
        (
            _arranged(x.unflatten(1, [sizes[axis] for axis in order]), order)
            for order in (("b", "w", "c"), ("c", "b", "w"))
        ),
    )


def space_to_depth(call: Call) -> torch.Tensor:
    """[n, C, H * b, W * b] to [n, C * b^2, H, W]; the order of the channels is not documented."""
    x, block = image(call), call.integer("block_size")
    blocks = _blocks(call, x, block, block)
    readings = (blocks.permute(0, *order, 2, 4) for order in ((3, 5, 1), (1, 3, 5)))
    return agreed(call, "the order of the channels", (way.flatten(1, 3) for way in readings))


def space_to_batch(call: Call) -> torch.Tensor:
    """[n, C, H, W] to [n * b0 * b1, C, ...]; the order in the batch is not documented."""
    x = image(call)
    (tall, wide), (rows, columns) = _block_shape(call), _amounts(call, "paddings")
    bounded(call, [*x.shape[:2], x.shape[2] + sum(rows), x.shape[3] + sum(columns)])
    blocks = _blocks(call, functional.pad(x, [*columns, *rows]), tall, wide)
    readings = (blocks.permute(*order, 1, 2, 4) for order in permutations((3, 5, 0)))
    return agreed(call, "the order in the batch", (way.flatten(0, 2) for way in readings))


def batch_to_space(call: Call) -> torch.Tensor:
    """[n * b0 * b1, C, H, W] to [n, C, ...]; the order in the batch is not documented."""
    x = image(call)
    (tall, wide), (rows, columns) = _block_shape(call), _amounts(call, "crops")
    _divides(call, tall * wide, x.shape[0])
    sizes = {0: x.shape[0] // (tall * wide), 1: tall, 2: wide}
    height, width = x.shape[2] * tall - sum(rows), x.shape[3] * wide - sum(columns)
    if height < 1 or width < 1:
        raise call.damaged("the crops leave nothing")

    def reading(order: Sequence[int]) -> torch.Tensor:
        blocks: torch.Tensor = x.unflatten(0, [sizes[axis] for axis in order])
        n, b, w = (order.index(axis) for axis in range(3))
        whole = blocks.permute(n, 3, 4, b, 5, w).flatten(4).flatten(2, 3)
        return whole.narrow(2, rows[0], height).narrow(3, columns[0], width)

    return agreed(call, "the order in the batch", map(reading, permutations(range(3))))


def sliding_windows(call: Call) -> torch.Tensor:
    """All windows of `size` along `axis`, in a new dimension after it."""
    x = call.tensor("x")
    axis, size = call.integer("axis"), call.integer("size")
    stride = call.integer("stride", 1)
    if not -x.dim() <= axis < x.dim():
        raise call.damaged(f"axis={axis} for a rank of {x.dim()}")
    if size < 1 or stride < 1 or size > x.shape[axis]:
        call.refuse(f"windows of {size} by steps of {stride} along {x.shape[axis]}")
    axis %= x.dim()
    return x.unfold(axis, size, stride).movedim(-1, axis + 1)


OPERATORS: dict[str, Operator] = {
    "batch_to_space": batch_to_space,
    "depth_to_space": depth_to_space,
    "pad": pad,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
    "sliding_windows": sliding_windows,
    "space_to_batch": space_to_batch,
    "space_to_depth": space_to_depth,
}


def _divides(call: Call, factor: int, size: int) -> None:
    if factor < 1 or size % factor:
        raise call.damaged(f"{factor} does not divide {size}")


def _blocks(call: Call, x: torch.Tensor, tall: int, wide: int) -> torch.Tensor:
    """[n, C, H / tall, tall, W / wide, wide] of x, [n, C, H, W]."""
    _divides(call, tall, x.shape[2])
    _divides(call, wide, x.shape[3])
    blocks: torch.Tensor = x.unflatten(3, (-1, wide)).unflatten(2, (-1, tall))
    return blocks


def _arranged(x: torch.Tensor, order: Sequence[str]) -> torch.Tensor:
    """[n, C, H * b, W * b] of x, [n, ..., H, W], the dimensions between in the given order."""
    channel, tall, wide = (1 + order.index(axis) for axis in ("c", "b", "w"))
    return x.permute(0, channel, 4, tall, 5, wide).flatten(4).flatten(2, 3)


def _block_shape(call: Call) -> tuple[int, int]:
    given = call.integers("block_shape")
    if len(given) != 2 or min(given) < 1:
        raise call.damaged(f"block_shape={given}")
    return given[0], given[1]


def _amounts(call: Call, name: str) -> tuple[list[int], list[int]]:
    given = call.tensor(name)
    if given.shape != (2, 2) or bool((given < 0).any()):
        raise call.damaged(f"{name}={given.tolist()}")
    rows, columns = given.tolist()
    return rows, columns
