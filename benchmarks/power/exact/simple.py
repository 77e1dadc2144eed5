"""Operators that compute element by element, reduce, or move values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name torch users know

__all__ = ["SIMPLE", "Operator"]

Attributes = dict[str, Any]
Operator = Callable[..., Any]

_PROTO = onnx.TensorProto
_INTEGERS = {
    _PROTO.INT64: torch.int64,
    _PROTO.INT32: torch.int32,
    _PROTO.INT8: torch.int8,
    _PROTO.UINT8: torch.uint8,
    _PROTO.BOOL: torch.bool,
}


def _ints(value: Tensor) -> list[int]:
    return [int(v) for v in value.reshape(-1)]


def _cast(a: Attributes, x: Tensor) -> Tensor:
    """A cast to a half type rounds; float32 stands for exact numbers."""
    to = a["to"]
    if to in _INTEGERS:
        return x.to(_INTEGERS[to])
    if to == _PROTO.FLOAT16:
        return x.to(torch.float16).double()
    if to == _PROTO.BFLOAT16:
        return x.to(torch.bfloat16).double()
    return x.double()


def _clip(
    a: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    return x.clamp(None if low is None else low.item(), None if high is None else high.item())


def _gelu(a: Attributes, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=a.get("approximate", "none"))


def _hard_sigmoid(a: Attributes, x: Tensor) -> Tensor:
    return (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0, 1)


def _elu(a: Attributes, x: Tensor) -> Tensor:
    return torch.where(x > 0, x, a.get("alpha", 1.0) * torch.expm1(x))


def _celu(a: Attributes, x: Tensor) -> Tensor:
    alpha = a.get("alpha", 1.0)
    return x.clamp(min=0) + (alpha * torch.expm1(x / alpha)).clamp(max=0)


def _selu(a: Attributes, x: Tensor) -> Tensor:
    alpha, gamma = a.get("alpha", 1.6732632), a.get("gamma", 1.0507009)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


def _slope(x: Tensor, slope: Tensor | float) -> Tensor:
    return torch.where(x < 0, x * slope, x)


def _division(x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    def reduce(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
        chosen = _ints(axes) if axes is not None else list(a.get("axes", range(x.ndim)))
        return function(x, chosen, bool(a.get("keepdims", 1)))

    return reduce


def _sizes(shape: list[int], x: Tensor, zero: bool = False) -> list[int]:
    return [x.shape[i] if n == 0 and not zero else n for i, n in enumerate(shape)]


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape(_sizes(_ints(shape), x, bool(a.get("allowzero", 0))))


def _squeeze(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(_ints(axes)))


def _unsqueeze(a: Attributes, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.ndim + axes.numel()
    for axis in sorted(n % rank for n in _ints(axes)):
        x = x.unsqueeze(axis)
    return x


def _expand(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(_ints(shape))))


def _gather(a: Attributes, x: Tensor, index: Tensor) -> Tensor:
    axis = a.get("axis", 0) % x.ndim
    size = x.shape[axis]
    flat = torch.where(index < 0, index + size, index).reshape(-1).long()
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def _gather_nd(a: Attributes, x: Tensor, index: Tensor) -> Tensor:
    if a.get("batch_dims", 0):
        raise NotImplementedError("GatherND with batch dimensions")
    return x[tuple(index.long().unbind(-1))]


def _scatter_nd(a: Attributes, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    if a.get("reduction", "none") != "none":
        raise NotImplementedError("ScatterND with a reduction")
    result = x.clone()
    result[tuple(index.long().unbind(-1))] = updates
    return result


def _slice(a: Attributes, x: Tensor, starts: Tensor, ends: Tensor, *more: Tensor | None) -> Tensor:
    axes = _ints(more[0]) if more and more[0] is not None else list(range(starts.numel()))
    steps = _ints(more[1]) if len(more) > 1 and more[1] is not None else [1] * len(axes)
    for axis, start, end, step in zip(axes, _ints(starts), _ints(ends), steps, strict=True):
        span = range(x.shape[axis])[slice(start, end if end > -(2**62) else None, step)]
        x = x.index_select(axis, torch.tensor(list(span), dtype=torch.int64))
    return x


def _split(a: Attributes, x: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
    axis = a.get("axis", 0)
    if sizes is not None:
        return list(x.split(_ints(sizes), axis))
    count: int = a.get("num_outputs") or a["outputs"]
    return list(x.split(-(-x.shape[axis] // count), axis))


def _transpose(a: Attributes, x: Tensor) -> Tensor:
    return x.permute(a.get("perm", list(range(x.ndim))[::-1]))


def _depth_to_space(a: Attributes, x: Tensor) -> Tensor:
    block = a["blocksize"]
    n, channels, height, width = x.shape
    if a.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    parts = x.reshape(n, block, block, channels // block**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(n, -1, height * block, width * block)


def _arg(a: Attributes, x: Tensor, largest: bool) -> Tensor:
    axis = a.get("axis", 0)
    x = x if largest else -x
    if a.get("select_last_index", 0):
        last = x.shape[axis] - 1
        return last - x.flip(axis).argmax(axis, keepdim=bool(a.get("keepdims", 1)))
    return x.argmax(axis, keepdim=bool(a.get("keepdims", 1)))


def _top_k(a: Attributes, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    order = x.sort(dim=a.get("axis", -1), descending=bool(a.get("largest", 1)), stable=True)
    axis, k = a.get("axis", -1), int(count)
    return order.values.narrow(axis, 0, k), order.indices.narrow(axis, 0, k)


def _cumulative(a: Attributes, x: Tensor, axis: Tensor) -> Tensor:
    if a.get("exclusive", 0) or a.get("reverse", 0):
        raise NotImplementedError("CumSum that is exclusive or reversed")
    return x.cumsum(int(axis))


def _constant_of_shape(a: Attributes, shape: Tensor) -> Tensor:
    value = a.get("value", torch.zeros(1, dtype=torch.float64))
    return value.reshape(()).expand(_ints(shape)).clone()


def _one(function: Callable[[Tensor], Tensor]) -> Operator:
    return lambda a, x: function(x)


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    return lambda a, x, y: function(x, y)


SIMPLE: dict[str, Operator] = {
    **{name: _one(getattr(torch, name.lower())) for name in (
        "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu",
        "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Tanh",
    )},
    "Identity": lambda a, x: x,
    "Not": _one(torch.logical_not),
    "Mish": _one(F.mish),
    "Softplus": lambda a, x: torch.logaddexp(x, torch.zeros_like(x)),
    "Softsign": _one(F.softsign),
    "HardSwish": lambda a, x: x * (x / 6 + 0.5).clamp(0, 1),
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": lambda a, x: _slope(x, a.get("alpha", 0.01)),
    "PRelu": lambda a, x, slope: _slope(x, slope),
    "Elu": _elu,
    "Celu": _celu,
    "Selu": _selu,
    "Gelu": _gelu,
    "Clip": _clip,
    "Cast": _cast,
    "Softmax": lambda a, x: x.softmax(a.get("axis", -1)),
    "LogSoftmax": lambda a, x: x.log_softmax(a.get("axis", -1)),
    "Add": _two(torch.add),
    "Sub": _two(torch.sub),
    "Mul": _two(torch.mul),
    "Div": _two(_division),
    "Pow": lambda a, x, y: torch.pow(x, y.to(x.dtype)),
    "Mod": lambda a, x, y: torch.fmod(x, y) if a.get("fmod") else torch.remainder(x, y),
    "Max": lambda a, *x: torch.stack(torch.broadcast_tensors(*x)).amax(0),
    "Min": lambda a, *x: torch.stack(torch.broadcast_tensors(*x)).amin(0),
    "MatMul": _two(torch.matmul),
    "Equal": _two(torch.eq),
    "Greater": _two(torch.gt),
    "GreaterOrEqual": _two(torch.ge),
    "Less": _two(torch.lt),
    "LessOrEqual": _two(torch.le),
    "And": _two(torch.logical_and),
    "Or": _two(torch.logical_or),
    "Where": lambda a, c, x, y: torch.where(c, x, y),
    "ReduceMean": _reduction(lambda x, axes, keep: x.mean(axes, keep)),
    "ReduceSum": _reduction(lambda x, axes, keep: x.sum(axes, keep)),
    "ReduceMax": _reduction(lambda x, axes, keep: x.amax(axes, keep)),
    "ReduceMin": _reduction(lambda x, axes, keep: x.amin(axes, keep)),
    "ReduceL1": _reduction(lambda x, axes, keep: x.abs().sum(axes, keep)),
    "ReduceL2": _reduction(lambda x, axes, keep: x.square().sum(axes, keep).sqrt()),
    "Reshape": _reshape,
    "Flatten": lambda a, x: x.reshape(math.prod(x.shape[: a.get("axis", 1)]), -1),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": lambda a, x, i: torch.gather(x, a.get("axis", 0), i),
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
    "DepthToSpace": _depth_to_space,
    "Tile": lambda a, x, n: x.repeat(_ints(n)),
    "Shape": lambda a, x: torch.tensor(x.shape[a.get("start", 0) : a.get("end")]),
    "ArgMax": lambda a, x: _arg(a, x, True),
    "ArgMin": lambda a, x: _arg(a, x, False),
    "TopK": _top_k,
    "CumSum": _cumulative,
    "Constant": lambda a: next(v for k, v in a.items() if k != "outputs"),
    "ConstantOfShape": _constant_of_shape,
}  # fmt: skip
