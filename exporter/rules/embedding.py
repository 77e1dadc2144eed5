"""Bags of embeddings, and embeddings whose rows are kept short, in operators that runtimes have."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .common import Rule
from .scattering import bounded, in_segments, static
from .traced import NotRewritten

__all__ = ["EMBEDDING_RULES"]

aten = torch.ops.aten

_SUM, _MEAN, _MAX = range(3)  # torch.nn.functional.embedding_bag's modes


def _bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[Tensor, None, None, None]:
    if indices.dim() != 1 or not indices.numel():
        raise NotRewritten
    count = indices.shape[0]
    if include_last_offset:
        starts, ends = offsets[:-1], offsets[1:]
    else:
        last = torch.full([1], count, dtype=offsets.dtype)
        starts, ends = offsets, torch.cat([offsets[1:], last])
    bounded(starts.shape[0], count, weight.shape[1])
    hit = in_segments(starts, ends, count)
    if padding_idx >= 0:
        hit = hit & (indices != padding_idx)
    rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    inside = hit.unsqueeze(-1)
    if mode == _MAX:
        found = torch.where(inside, rows, -math.inf).amax(1)
        return torch.where(inside.any(1), found, 0.0), None, None, None
    found = torch.where(inside, rows, 0.0).sum(1)
    if mode == _MEAN:
        many = inside.to(weight.dtype).sum(1)
        found = found / torch.where(many > 0, many, 1.0)
    return found, None, None, None


def _renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows in use that are longer than `max_norm` are scaled; 1e-7 as PyTorch has it."""
    bounded(weight.shape[0], indices.numel())
    used = (indices.reshape(1, -1) == torch.arange(weight.shape[0])[:, None]).any(1)
    norms = torch.linalg.vector_norm(weight, norm_type, 1, keepdim=True)
    scaled = weight * (max_norm / (norms + 1e-7))
    return torch.where(used[:, None] & (norms > max_norm), scaled, weight)


EMBEDDING_RULES: dict[Any, Rule] = {
    **dict.fromkeys(
        (aten._embedding_bag.default, aten._embedding_bag_forward_only.default), static(_bag)
    ),
    aten.embedding_renorm.default: static(_renorm),
}
