"""Normalisations: by given or by own statistics, by norms, by neighbouring channels."""

from __future__ import annotations

import torch

from .axes import named_axes
from .call import Call, Operator
from .elementwise import FLOATS, of_dtype, per_channel
from .sums import accumulated, mean, total

__all__ = ["OPERATORS"]


def _kept(call: Call, x: torch.Tensor) -> torch.dtype:
    return call.accumulate if x.dtype == torch.float16 else torch.float32


def _batch_norm(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if not 3 <= x.dim() <= 5:
        call.refuse(f"x of rank {x.dim()}, where 3 to 5 is documented")
    centred = x.float() - per_channel(call, "mean", x)
    deviation = (per_channel(call, "variance", x) + call.number("epsilon", 1e-5)).sqrt()
    return _scaled_by_channel(call, x, centred / deviation)


def _instance_norm(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if not 3 <= x.dim() <= 4:
        call.refuse(f"x of rank {x.dim()}, where 3 or 4 is documented")
    normal = _normalized(call, x, list(range(2, x.dim())))
    return _scaled_by_channel(call, x, normal)


def _scaled_by_channel(call: Call, x: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    if call.has("gamma"):
        normal = normal * per_channel(call, "gamma", x)
    if call.has("beta"):
        normal = normal + per_channel(call, "beta", x)
    return normal.to(x.dtype)


def _normalized(call: Call, x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """`(x - E[x]) / sqrt(Var[x] + epsilon)` over `axes` in float32, the variance not corrected."""
    kept = _kept(call, x)
    wide = x.float()
    centred = wide - mean(wide, axes, kept, keepdim=True)
    if kept == torch.float16:
        centred = centred.half().float()
    variance = mean(centred.square(), axes, kept, keepdim=True)
    return centred / (variance + call.number("epsilon", 1e-5)).sqrt()


def _layer_norm(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    axes = named_axes(call, x.dim())
    normal = _normalized(call, x, axes)
    if call.has("gamma"):
        normal = normal * _over_axes(call, "gamma", x, axes)
    if call.has("beta"):
        normal = normal + _over_axes(call, "beta", x, axes)
    return normal.to(x.dtype)


def _over_axes(call: Call, name: str, x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """A parameter of shape `x.shape[axes]`, shaped to broadcast against `x`."""
    if axes != sorted(axes):
        call.refuse(f"{name} with axes {axes}, which do not ascend")
    found = call.tensor(name)
    if tuple(found.shape) != tuple(x.shape[axis] for axis in axes):
        raise call.damaged(f"{name} is of shape {list(found.shape)}")
    shape = [x.shape[axis] if axis in axes else 1 for axis in range(x.dim())]
    return found.float().reshape(shape)


def _l2_norm(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    if x.dim() < 3:
        raise call.damaged(f"x is of rank {x.dim()}, less than 3")
    squares = total(x.float().square(), [-3, -2, -1], _kept(call, x), keepdim=True)
    return (x.float() / (squares + call.number("epsilon", 1e-6)).sqrt()).to(x.dtype)


def _local_response_norm(call: Call) -> torch.Tensor:
    x = of_dtype(call, "x", FLOATS)
    size = call.integer("size")
    alpha, beta = call.number("alpha", 1e-4), call.number("beta", 0.75)
    k = call.number("k", 1.0)
    if not 3 <= x.dim() <= 4:
        call.refuse(f"x of rank {x.dim()}, where 3 or 4 is documented")
    if size < 1:
        raise call.damaged(f"size is {size}")
    if size % 2 == 0:
        call.refuse(f"size {size}: an even number of channels has no middle")
    channels = x.shape[1]
    squares = torch.nn.functional.pad(
        x.float().square(), (0, 0) * (x.dim() - 2) + (size // 2, size // 2)
    )
    near = accumulated(
        (squares.narrow(1, offset, channels) for offset in range(size)), _kept(call, x)
    )
    return (x.float() / (k + alpha / size * near).pow(beta)).to(x.dtype)


OPERATORS: dict[str, Operator] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "local_response_norm": _local_response_norm,
}
