"""Masks that are meant to be infinite, and other operators that coremltools takes shortcuts with.

Its causal attention adds -30000 to what must not be seen, `triu` multiplies with zeros (infinity
times zero is NaN), and instance norms leave running statistics out.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...exporter.rules.common import Rule
from ...exporter.rules.traced import NotRewritten, traced

__all__ = ["MASK_RULES"]

aten = torch.ops.aten


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Where a query may attend to nothing PyTorch gives zeros, and a plain softmax NaN."""
    if dropout_p or enable_gqa or (attn_mask is None and not is_causal):
        raise NotRewritten
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = ((query * factor) @ key.transpose(-2, -1)).float()
    if is_causal:
        rows = torch.arange(query.shape[-2]).unsqueeze(1)
        seen = torch.arange(key.shape[-2]).unsqueeze(0) <= rows
        scores = torch.where(seen, scores, -float("inf"))
    elif attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, -float("inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask.float()
    lost = scores.amax(-1, keepdim=True) == -float("inf")
    shares = torch.softmax(torch.where(lost, 0.0, scores), -1)
    return torch.where(lost, 0.0, shares).to(query.dtype) @ value


def _offsets(x: Tensor) -> Tensor:
    """Column minus row of each element of the last two axes."""
    rows = torch.arange(x.shape[-2]).unsqueeze(1)
    return torch.arange(x.shape[-1]).unsqueeze(0) - rows


def _triu(x: Tensor, diagonal: int) -> Tensor:
    return torch.where(_offsets(x) >= diagonal, x, torch.zeros((), dtype=x.dtype))


def _tril(x: Tensor, diagonal: int) -> Tensor:
    return torch.where(_offsets(x) <= diagonal, x, torch.zeros((), dtype=x.dtype))


def _instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if use_input_stats or running_mean is None or running_var is None:
        raise NotRewritten
    shape = [1, -1, *[1] * (x.dim() - 2)]
    x = (x - running_mean.reshape(shape)) / torch.sqrt(running_var.reshape(shape) + eps)
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


MASK_RULES: dict[Any, Rule] = {
    aten.scaled_dot_product_attention.default: traced(_attention),
    aten.triu.default: traced(_triu),
    aten.tril.default: traced(_tril),
    aten.instance_norm.default: traced(_instance_norm),
}
