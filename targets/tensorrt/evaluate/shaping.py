"""Layers that make, cast and rearrange tensors without arithmetic."""

from __future__ import annotations

import torch

from .call import Call, Operator

__all__ = ["OPERATORS"]


def _constant(call: Call) -> torch.Tensor:
    shape = call.integers("shape")
    weights = call.weights("weights")
    if weights is None:
        return torch.empty(shape, dtype=call.result_dtype())
    return weights.reshape(shape)


def _identity(call: Call) -> torch.Tensor:
    return call.tensor()


OPERATORS: dict[str, Operator] = {"CONSTANT": _constant, "IDENTITY": _identity}
