"""Convolutions that runtimes lack: of one image alone, or transposed with computed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..nodes import Editor, argument, tensor_value
from .common import Rule
from .traced import NotRewritten, traced

__all__ = ["CONVOLUTION_RULES", "is_cut_wrongly", "is_unbatched"]

aten = torch.ops.aten


def is_cut_wrongly(node: Node) -> bool:
    """Whether more is added to a transposed convolution's result than is cut from it.

    coremltools pads the image instead then, which is the same for a stride of 2 alone.
    """
    added, cut = argument(node, "output_padding"), argument(node, "padding")
    rank = max(len(added), len(cut))
    return any(a > c for a, c in zip(_each(added, rank), _each(cut, rank), strict=True))


def is_unbatched(node: Node) -> bool:
    """Whether a convolution's image has an axis less than its weights."""
    x, weight = tensor_value(node.args[0]), tensor_value(node.args[1])
    return x is not None and weight is not None and x.dim() < weight.dim()


def _batched(editor: Editor, node: Node) -> Any:
    """The same convolution of a batch of one."""
    if not is_unbatched(node):
        return None
    target: Any = node.target
    images = editor.call(node, aten.unsqueeze.default, node.args[0], 0)
    result = editor.call(node, target, images, *node.args[1:], **node.kwargs)
    return editor.call(node, aten.squeeze.dims, result, [0], value=node.meta["val"])


def _each(value: int | Sequence[int], rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else [*value]
    return values * rank if len(values) == 1 else values


def _spread(x: Tensor, steps: Sequence[int]) -> Tensor:
    """Zeros between neighbours, so that they are `steps` apart along the last axes."""
    for axis, step in enumerate(steps, x.dim() - len(steps)):
        size = x.shape[axis]
        if step == 1:
            continue
        if not isinstance(size, int):
            raise NotRewritten
        # Rank 4, since Core ML has no tensors of more than 5 axes.
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        column = x.flatten(axis + 1).shape[-1] if after else 1
        wide = aten.constant_pad_nd.default(x.reshape(-1, size, 1, column), [0, 0, 0, step - 1])
        flat = wide.reshape([*before, size * step, *after])
        x = aten.slice.Tensor(flat, axis, 0, (size - 1) * step + 1)
    return x


def _transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """As a plain convolution of the spread image with the weights backwards.

    https://arxiv.org/abs/1603.07285, section 4: the transposed convolution's arithmetic.
    """
    rank = weight.dim() - 2
    if x.dim() < weight.dim():
        raise NotRewritten
    stride, padding, output_padding, dilation = (
        _each(value, rank) for value in (stride, padding, output_padding, dilation)
    )
    inner, outer, *kernel = weight.shape
    if groups > 1:
        weight = weight.reshape([groups, inner // groups, outer, *kernel]).transpose(1, 2)
        weight = weight.reshape([groups * outer, inner // groups, *kernel])
    else:
        weight = weight.transpose(0, 1)
    weight = _spread(weight.flip(list(range(2, weight.dim()))), dilation)
    x = _spread(x, stride)
    borders: list[int] = []
    for axis in reversed(range(rank)):
        reach = dilation[axis] * (kernel[axis] - 1) - padding[axis]
        borders += [reach, reach + output_padding[axis]]
    x = _bordered(x, borders)
    ones = [1] * rank
    result: Tensor = aten.convolution.default(
        x, weight, bias, ones, [0] * rank, ones, False, [0] * rank, groups
    )
    return result


def _bordered(x: Tensor, borders: Sequence[int]) -> Tensor:
    """Zeros around the last axes, or less of them where a border is negative."""
    if any(border > 0 for border in borders):
        x = aten.constant_pad_nd.default(x, [max(border, 0) for border in borders])
    for number, (before, after) in enumerate(zip(borders[::2], borders[1::2], strict=True)):
        axis = x.dim() - 1 - number
        if before < 0 or after < 0:
            x = aten.slice.Tensor(x, axis, max(-before, 0), x.shape[axis] + min(after, 0))
    return x


def _general(editor: Editor, node: Node) -> Any:
    """`aten.convolution`; a transposed one under the name that has a rule."""
    weight: Any = tensor_value(node.args[1])
    if (value := _batched(editor, node)) is not None:
        return value
    rank = weight.dim() - 2
    if not argument(node, "transposed") or rank not in _TRANSPOSED:
        return None
    names = ("bias", "stride", "padding", "output_padding", "groups", "dilation")
    rest = [argument(node, name) for name in names]
    return editor.call(node, _TRANSPOSED[rank], *node.args[:2], *rest, value=node.meta["val"])


def _transposing(editor: Editor, node: Node) -> Any:
    value = _batched(editor, node)
    return value if value is not None else traced(_transposed)(editor, node)


_TRANSPOSED = {
    1: aten.conv_transpose1d.default,
    2: aten.conv_transpose2d.input,
    3: aten.conv_transpose3d.input,
}

CONVOLUTION_RULES: dict[Any, Rule] = {
    **dict.fromkeys((aten.conv1d.default, aten.conv2d.default, aten.conv3d.default), _batched),
    aten.convolution.default: _general,
    **dict.fromkeys(_TRANSPOSED.values(), _transposing),
}
