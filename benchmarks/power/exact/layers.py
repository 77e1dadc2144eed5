"""Operators with windows, statistics or state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name torch users know

from .simple import Operator

__all__ = ["LAYERS"]

Attributes = dict[str, Any]


def _padded(a: Attributes, x: Tensor, value: float = 0.0) -> Tensor:
    """`x` with a window's explicit borders; torch's own argument allows equal ones only."""
    if a.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotImplementedError("auto_pad")
    pads = a.get("pads", [0] * 2 * (x.ndim - 2))
    half = len(pads) // 2
    pairs = [(pads[i], pads[i + half]) for i in range(half)]
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=value)


def _conv(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = x.ndim - 2
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    strides, dilations = a.get("strides", [1] * axes), a.get("dilations", [1] * axes)
    return function(_padded(a, x), weight, bias, strides, 0, dilations, a.get("group", 1))


def _conv_transpose(a: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = x.ndim - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    if "output_shape" in a:
        raise NotImplementedError("ConvTranspose with output_shape")
    more = a.get("output_padding", [0] * axes)
    strides, dilations = a.get("strides", [1] * axes), a.get("dilations", [1] * axes)
    y = function(x, weight, bias, strides, 0, a.get("group", 1), dilations)
    pads = a.get("pads", [0] * 2 * axes)
    y = F.pad(y, [n for extra in reversed(more) for n in (0, extra)])
    for axis in range(axes):
        size = y.shape[axis + 2] - pads[axis] - pads[axis + axes]
        y = y.narrow(axis + 2, pads[axis], size)
    return y


def _ceiled(a: Attributes, x: Tensor) -> list[int]:
    """How much longer each axis must be for the last window, with ceil_mode."""
    axes = x.ndim - 2
    kernel, dilations = a["kernel_shape"], a.get("dilations", [1] * axes)
    strides = a.get("strides", [1] * axes)
    extra = []
    for axis in range(axes):
        size = x.shape[axis + 2] - (dilations[axis] * (kernel[axis] - 1) + 1)
        extra.append(-size % strides[axis] if a.get("ceil_mode", 0) else 0)
    return [n for e in reversed(extra) for n in (0, e)]


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    axes = x.ndim - 2
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    y = _padded(a, x, -torch.inf)
    y = F.pad(y, _ceiled(a, y), value=-torch.inf)
    strides, dilations = a.get("strides", [1] * axes), a.get("dilations", [1] * axes)
    return function(y, a["kernel_shape"], strides, 0, dilations)


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    axes = x.ndim - 2
    kernel, strides = a["kernel_shape"], a.get("strides", [1] * axes)
    if any(d != 1 for d in a.get("dilations", [1])):
        raise NotImplementedError("AveragePool with dilations")
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    # What is beyond the borders counts if asked for; what ceil_mode adds never does.
    counted = _padded(a, ones, 1.0 if a.get("count_include_pad", 0) else 0.0)
    extra = _ceiled(a, counted)
    channels = x.shape[1]
    window = torch.ones((1, 1, *kernel), dtype=x.dtype)
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    total = function(
        F.pad(_padded(a, x), extra),
        window.expand(channels, 1, *kernel),
        None,
        strides,
        groups=channels,
    )
    return total / function(F.pad(counted, extra), window, None, strides)


def _batch_norm(
    a: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    return F.batch_norm(x, mean, var, scale, bias, eps=a.get("epsilon", 1e-5))


def _layer_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    axes = list(range(a.get("axis", -1) % x.ndim, x.ndim))
    centred = x - x.mean(axes, keepdim=True)
    spread = centred.square().mean(axes, keepdim=True)
    y = centred * torch.rsqrt(spread + a.get("epsilon", 1e-5)) * scale
    return y if bias is None else y + bias


def _instance_norm(a: Attributes, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=a.get("epsilon", 1e-5))


def _gemm(a: Attributes, x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    x = x.T if a.get("transA") else x
    y = y.T if a.get("transB") else y
    product = a.get("alpha", 1.0) * (x @ y)
    return product if bias is None else product + a.get("beta", 1.0) * bias


def _pad(a: Attributes, x: Tensor, pads: Tensor, *more: Tensor | None) -> Tensor:
    value = float(more[0]) if more and more[0] is not None else 0.0
    axes = range(x.ndim) if len(more) < 2 or more[1] is None else [int(n) for n in more[1]]
    amounts = [int(n) for n in pads]
    width = [(0, 0)] * x.ndim
    for index, axis in enumerate(axes):
        width[axis] = (amounts[index], amounts[index + len(amounts) // 2])
    mode: Any = a.get("mode", "constant")
    more_args = {"constant_values": value} if mode == "constant" else {}
    for axis, (low, high) in enumerate(width):  # negative amounts crop
        span = x.shape[axis] + min(low, 0) + min(high, 0)
        x = x.narrow(axis, max(-low, 0), span)
    width = [(max(low, 0), max(high, 0)) for low, high in width]
    return torch.from_numpy(np.pad(x.numpy(), width, mode, **more_args))


def _grid_sample(a: Attributes, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode: str = a.get("mode", "linear")
    corners = bool(a.get("align_corners", 0))
    borders: str = a.get("padding_mode", "zeros")
    return F.grid_sample(x, grid, modes.get(mode, mode), borders, align_corners=corners)


def _resize(
    a: Attributes,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Every axis is a matrix product, since all modes are separable."""
    axes = a.get("axes", list(range(x.ndim)))
    for index, axis in enumerate(axes):
        before = x.shape[axis]
        if scales is not None and scales.numel():
            scale = float(scales[index])
            after = int(np.floor(before * scale))
        else:
            assert sizes is not None
            after = int(sizes[index])
            scale = after / before
        if after != before or scale != 1:
            weights = torch.from_numpy(_interpolation(a, before, after, scale))
            x = torch.movedim(torch.tensordot(weights, x, ([1], [axis])), 0, axis)
    return x


def _interpolation(a: Attributes, before: int, after: int, scale: float) -> np.ndarray[Any, Any]:
    """A row for every new place: how much of each old place it takes."""
    place = np.arange(after, dtype=np.float64)
    how = a.get("coordinate_transformation_mode", "half_pixel")
    if how == "align_corners":
        where = place * (before - 1) / (after - 1) if after > 1 else place * 0
    elif how == "asymmetric":
        where = place / scale
    elif how in ("half_pixel", "pytorch_half_pixel"):
        where = (place + 0.5) / scale - 0.5
        if how != "half_pixel" and after == 1:
            where = where * 0
    else:
        raise NotImplementedError(f"Resize with {how}")
    mode = a.get("mode", "nearest")
    rows = np.zeros((after, before))
    if mode == "nearest":
        rounding: dict[str, Callable[[Any], Any]] = {
            "round_prefer_floor": lambda w: np.ceil(w - 0.5),
            "round_prefer_ceil": lambda w: np.floor(w + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        nearest = rounding[a.get("nearest_mode", "round_prefer_floor")]
        chosen = np.clip(nearest(where), 0, before - 1).astype(int)
        rows[np.arange(after), chosen] = 1
        return rows
    if a.get("exclude_outside", 0) or a.get("antialias", 0):
        raise NotImplementedError("Resize with exclude_outside or antialias")
    left = np.floor(where)
    t = where - left
    if mode == "linear":
        parts = {0: 1 - t, 1: t}
    else:
        c = a.get("cubic_coeff_a", -0.75)

        def near(d: Any) -> Any:
            return ((c + 2) * d - (c + 3)) * d * d + 1

        def far(d: Any) -> Any:
            return ((c * d - 5 * c) * d + 8 * c) * d - 4 * c

        parts = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
    for offset, share in parts.items():
        chosen = np.clip(left + offset, 0, before - 1).astype(int)
        np.add.at(rows, (np.arange(after), chosen), share)
    return rows


def _lstm(a: Attributes, x: Tensor, w: Tensor, r: Tensor, *more: Tensor | None) -> list[Tensor]:
    bias, _, state, cell = (*more, None, None, None, None)[:4]
    _demand_plain(a)

    def step(h: Tensor, c: Tensor, given: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        i, o, f, g = (given + held).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def one(d: int, steps: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wb, rb = _halves(bias, d, w)
        seen = []
        for part in steps:
            h, c = step(h, c, part @ w[d].T + wb, h @ r[d].T + rb)
            seen.append(h)
        return torch.stack(seen), h, c

    return _both_ways(x, r, one, state, cell)


def _gru(a: Attributes, x: Tensor, w: Tensor, r: Tensor, *more: Tensor | None) -> list[Tensor]:
    bias, _, state = (*more, None, None, None)[:3]
    _demand_plain(a)
    late = a.get("linear_before_reset", 0)

    def one(d: int, steps: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wb, rb = _halves(bias, d, w)
        rz, rr, rh = r[d].chunk(3)
        bz, br, bh = rb.chunk(3)
        seen = []
        for part in steps:
            gz, gr, gh = (part @ w[d].T + wb).chunk(3, -1)
            z, reset = (gz + h @ rz.T + bz).sigmoid(), (gr + h @ rr.T + br).sigmoid()
            new = gh + (reset * (h @ rh.T + bh) if late else (reset * h) @ rh.T + bh)
            h = (1 - z) * new.tanh() + z * h
            seen.append(h)
        return torch.stack(seen), h, c

    return _both_ways(x, r, one, state, None)[:2]


def _demand_plain(a: Attributes) -> None:
    if "activations" in a or "clip" in a or a.get("layout", 0) or a.get("direction") == "reverse":
        raise NotImplementedError("a recurrent layer with options")


def _halves(bias: Tensor | None, direction: int, w: Tensor) -> tuple[Tensor, Tensor]:
    if bias is None:
        return w.new_zeros(w.shape[1]), w.new_zeros(w.shape[1])
    given, held = bias[direction].chunk(2)
    return given, held


def _both_ways(
    x: Tensor, r: Tensor, one: Any, state: Tensor | None, cell: Tensor | None
) -> list[Tensor]:
    """A layer's directions; the second one reads the sequence from its end."""
    found = []
    for d in range(r.shape[0]):
        nothing = x.new_zeros(x.shape[1], r.shape[2])
        h, c = (nothing if s is None else s[d] for s in (state, cell))
        seen, h, c = one(d, x.flip(0) if d else x, h, c)
        found.append((seen.flip(0) if d else seen, h, c))
    every, last_states, last_cells = zip(*found, strict=True)
    return [torch.stack(every, 1), torch.stack(last_states), torch.stack(last_cells)]


LAYERS: dict[str, Operator] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda a, x: x.mean(list(range(2, x.ndim)), True),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "Gemm": _gemm,
    "Pad": _pad,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "LSTM": _lstm,
    "GRU": _gru,
}
