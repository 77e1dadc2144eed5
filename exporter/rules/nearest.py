"""Nearest-neighbour resizing by picking rows and columns, where runtimes round differently."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..decompositions import inlined
from ..nodes import Editor, argument, tensor_value
from .common import Rule

__all__ = ["NEAREST_RULES", "has_whole_factors"]

aten = torch.ops.aten


def has_whole_factors(node: Node) -> bool:
    """Whether each pixel is repeated a whole number of times, which all conventions agree on."""
    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or result is None:
        return True
    return all(
        not isinstance(size, int) or not isinstance(count, int) or (size and count % size == 0)
        for size, count in zip(x.shape[2:], result.shape[2:], strict=True)
    )


def _scales(node: Node, rank: int) -> list[float | None]:
    """Factors as the call gives them, which PyTorch prefers to the ratio of the sizes."""
    names = {a.name for a in node.target._schema.arguments}  # type: ignore[union-attr]
    if "scale_factors" in names:
        given: Any = argument(node, "scale_factors")
        return list(given) if given else [None] * rank
    per_axis = {
        1: ("scales",),
        2: ("scales_h", "scales_w"),
        3: ("scales_d", "scales_h", "scales_w"),
    }
    return [argument(node, name) for name in per_axis[rank]]


def _rule(rank: int, *, centred: bool) -> Rule:
    def rule(editor: Editor, node: Node) -> Any:
        x, result = tensor_value(node.args[0]), tensor_value(node)
        if x is None or result is None:
            return None
        sizes, counts = x.shape[2:], result.shape[2:]
        if any(not isinstance(size, int) or not size for size in (*sizes, *counts)):
            return None
        ratios = [
            _ratio(size, count, scale)
            for size, count, scale in zip(sizes, counts, _scales(node, rank), strict=True)
        ]

        def picked(image: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
            for axis, (size, count, ratio) in enumerate(zip(sizes, counts, ratios, strict=True)):
                start = torch.arange(count).to(torch.float32) + (0.5 if centred else 0.0)
                places = (start * ratio).floor().clamp(max=size - 1).to(torch.int64)
                image = image.index_select(axis + 2, places)
            return image

        return inlined(editor, node, picked)

    return rule


def _ratio(size: int, count: int, scale: float | None) -> float:
    """Pixels of the image per pixel of the result, in float32 as PyTorch computes it."""
    exact = 1.0 / scale if scale else size / count
    return float(torch.tensor(exact, dtype=torch.float32))


NEAREST_RULES: dict[Any, Rule] = {
    getattr(getattr(aten, f"{prefix}{rank}d"), overload): _rule(rank, centred=centred)
    for rank in (1, 2, 3)
    for prefix, centred in (("upsample_nearest", False), ("_upsample_nearest_exact", True))
    for overload in ("default", "vec")
}
