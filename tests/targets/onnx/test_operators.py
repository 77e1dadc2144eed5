"""The written file computes what eager computes, where stock converters have gone wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from torch import Tensor, nn

_random = torch.Generator().manual_seed(0)


def rand(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=_random) * scale


class Calls(nn.Module):
    """A module that calls a function, with the layers the function needs."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*self.layers, *tensors)


A = torch.tensor([-7, -6, -1, 0, 1, 6, 7, 9])
B = torch.tensor([3, -4, 5, 3, -3, 4, -2, -9])
IMAGE = rand(1, 2, 13, 10)
ROWS = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]).bool()
Q, K = rand(2, 3, 4, 8), rand(2, 3, 4, 8)


def written_slices(x: Tensor, v: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1:3] = v
    x[:, ::2] += 1
    x[x > 2] = 0
    return x


def resizes(mode: str, **options: Any) -> Callable[[Tensor], Any]:
    return lambda x: (
        F.interpolate(x, size=(7, 11), mode=mode, **options),
        F.interpolate(x, size=(20, 9), mode=mode, **options),
        F.interpolate(x, scale_factor=(0.6, 2.3), mode=mode, **options),
    )


def pools(ceil: bool, counted: bool) -> Callable[[Tensor], Any]:
    return lambda x: (
        F.avg_pool2d(x, 3, 2, 1, ceil, counted),
        F.avg_pool2d(x, (2, 3), (2, 2), (1, 1), ceil, counted),
        F.avg_pool1d(x[0], 3, 2, 1, ceil, counted),
    )


CASES: dict[str, tuple[Any, ...]] = {
    "integer_division": (
        lambda a, b: (a // b, a // -2, torch.div(a, b, rounding_mode="trunc"), a % b, a % -3,
                      torch.fmod(a, b), a % 1, a / b),
        (A, B),
    ),
    "float_division": (
        lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y),
                      torch.fmod(x, y), x % 1, x % -2.5, x.frac()),
        (rand(20, scale=5), rand(20, scale=2)),
    ),
    "wide_integer_division": (
        lambda a, b, i, j: (torch.div(a, b, rounding_mode="trunc"), a // b, a // -3, a % b,
                            torch.div(i, j, rounding_mode="trunc"), i // j, i % j, i // 7,
                            torch.div(a, 3, rounding_mode="trunc"), a % 0.7, a // 0.3,
                            torch.div(a, i, rounding_mode="trunc"), a.to(torch.int8) // 3,
                            torch.div(i.to(torch.uint8), 3, rounding_mode="floor"), 100 // j),
        (torch.tensor([2**60 + 1, -(2**60) - 1, 16777217, -16777217]),
         torch.tensor([1, 1, -1, 3]),
         torch.tensor([16777217, -16777217, 2**31 - 1, -7]).int(),
         torch.tensor([1, -1, 3, -2]).int()),
    ),
    "float_division_at_the_edges": (
        lambda x, y, d: (x // y, x % y, torch.div(x, y, rounding_mode="floor"), x // 0.1,
                         x % (2 * math.pi), x % -0.3, 2.0 // y, 2.0 % y, d // d.flip(0), d % 0.1,
                         x.half() // y.half(), x.half() % 0.1,
                         torch.div(x, 0.1, rounding_mode="floor"),
                         torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, 1e-30)),
        (torch.tensor([1.0, -1.0, 0.3, 1e6, -1e6, 5.5, 0.0, 7.0, 1e-30, math.inf]),
         torch.tensor([0.1, 0.1, -0.1, 2 * math.pi, 3e-7, -2.5, 3.0, 0.0, 1e-38, 2.0]),
         torch.tensor([1.0, 0.1, -3.0, 1e15 + 0.3]).double()),
    ),
    "choice_of_booleans": (
        lambda c, a, b: (torch.where(c, a, b), torch.where(c, a, False), torch.where(c, True, b),
                         torch.where(c[:1], a, b[:, :1]), torch.where(c[0], a[:1], False),
                         torch.where(c, True, False)),
        (rand(3, 4) > 0, rand(3, 4) > 0, rand(3, 4) > 0),
    ),
    "integers_without_kernels": (
        lambda u, i: (-u, F.relu(i), F.relu(i.int()), F.relu(i.to(torch.int8)), F.relu(u),
                      F.relu(i.to(torch.int16)), -i, torch.aminmax(i), i.aminmax(dim=0)),
        (torch.tensor([0, 1, 128, 255], dtype=torch.uint8), torch.tensor([-5, 0, 7, -(2**40)])),
    ),
    "signbit": (lambda x, i: (torch.signbit(x), torch.signbit(i)),
                (torch.tensor([0.0, -0.0, -1.0, 2.0, -math.inf, 1e-40]), torch.tensor([-1, 0]))),
    "aminmax": (lambda x: (torch.aminmax(x), x.aminmax(dim=1, keepdim=True)), (rand(3, 4),)),
    "uint8": (lambda a: (a + 1, a // 2, a * 2, a.float() / 255, a.sum()),
              (torch.arange(0, 250, 10, dtype=torch.uint8),)),
    "alpha": (
        lambda x, y: (torch.add(x, y, alpha=2.5), torch.sub(x, y, alpha=2), x.add(2, alpha=4),
                      torch.rsub(x, y, alpha=3), torch.addmm(x, x, y, alpha=2, beta=0.5),
                      torch.addcmul(x, x, y, value=2), (x * 1).add_(y, alpha=3)),
        (rand(4, 4), rand(4, 4)),
    ),
    "mixed_dtypes": (
        lambda x, i, m: (i + m, x * m, i * 2.5, i + 1.0, m * 2, i + x, 1 - x, i / 2, x == 0,
                         torch.where(m, x, 0.0), torch.where(m, 1, i), x.half().sum(-1)),
        (rand(3, 4), torch.arange(12).reshape(3, 4) - 5, rand(3, 4) > 0),
    ),
    **{f"resize_{mode}": (resizes(mode), (IMAGE,))
       for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")},
    **{f"resize_aligned_{mode}": (resizes(mode, align_corners=True), (IMAGE,))
       for mode in ("bilinear", "bicubic")},
    **{f"resize_antialiased_{mode}": (resizes(mode, antialias=True), (IMAGE,))
       for mode in ("bilinear", "bicubic")},
    "resize_antialiased_aligned": (
        resizes("bicubic", antialias=True, align_corners=True), (IMAGE,)),
    **{f"avg_pool_ceil_{ceil}_counted_{counted}": (pools(ceil, counted), (IMAGE,))
       for ceil in (False, True) for counted in (False, True)},
    "avg_pool_divisor": (
        lambda x: (F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
                   F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5)),
        (IMAGE,),
    ),
    "max_pool": (
        lambda x: (F.max_pool2d(x, 3, 2, 1, dilation=2), F.max_pool2d(x - 100, 3, 1, 1),
                   F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
                   F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True)),
        (IMAGE,),
    ),
    "adaptive_pool": (
        lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 5)),
                   F.adaptive_max_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 1)),
        (rand(1, 2, 12, 10),),
    ),
    "negative_indices": (lambda x, i: (x[i], x[:, i], x[i, i], x[i.int()]),
                         (rand(6, 6), torch.tensor([-1, -6, 2]))),
    "duplicate_indices": (
        lambda x, i, v: (x.index_put((i,), v, accumulate=True), torch.index_add(x, 0, i % 5, v),
                         x.scatter_add(0, (i % 5)[:, None].expand(4, 3), v)),
        (rand(5, 3), torch.tensor([0, 4, -1, -1]), rand(4, 3)),
    ),
    "scatter_reduce": (
        lambda x, i, v: tuple(x.scatter_reduce(0, i, v, reduce=kind, include_self=whole)
                              for kind in ("sum", "prod", "mean", "amax", "amin")
                              for whole in (True, False)),
        (rand(5, 3), torch.tensor([[0, 1, 2], [0, 4, 2], [3, 1, 2]]), rand(3, 3)),
    ),
    "written_slices": (written_slices, (rand(5, 4), rand(5, 2))),
    "norms": (
        lambda a, b, c, d, e, x: (a(x), b(x), c(x), d(x), e(x)),
        (rand(2, 4, 6, 5, scale=3),),
        *(nn.BatchNorm2d(4), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)),
        *(nn.InstanceNorm2d(4, track_running_stats=True), nn.RMSNorm(5)),
    ),
    "activations": (
        lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.hardtanh(x, -0.3, 0.7),
                   F.elu(x, 0.7), F.celu(x, 0.6), F.softplus(x, 2, 5), F.threshold(x, 0.1, 2.0),
                   F.rrelu(x), F.glu(x, 1), F.softshrink(x, 0.3), F.mish(x)),
        (rand(4, 6, scale=4),),
    ),
    "activations_far_out": (
        lambda x: (F.logsigmoid(x), F.softplus(x), torch.log_softmax(x, -1),
                   torch.logsumexp(x, -1), F.silu(x)),
        (rand(4, 6, scale=300),),
    ),
    "masked_rows": (
        lambda x, m: (F.scaled_dot_product_attention(x, x, x, attn_mask=m),
                      F.scaled_dot_product_attention(
                          x, x, x, attn_mask=torch.zeros(4, 4).masked_fill(~m, -math.inf)),
                      torch.softmax(x[..., :4].masked_fill(~m, torch.finfo(x.dtype).min), -1),
                      torch.softmax(x[..., :4].masked_fill(~m, -math.inf), -1)),
        (rand(2, 3, 4, 8), ROWS),
    ),
    "attention": (
        lambda q, k, m: (F.scaled_dot_product_attention(q, k, k, is_causal=True),
                         F.scaled_dot_product_attention(q, k, k, attn_mask=m, scale=0.3),
                         F.scaled_dot_product_attention(q[0], k[0], k[0])),
        (Q, K, rand(4, 4)),
    ),
    "grouped_attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (rand(2, 4, 5, 8), rand(2, 2, 7, 8)),
    ),
    "grid_sample": (
        lambda x, g: tuple(F.grid_sample(x, g, mode, padding, aligned)
                           for mode in ("bilinear", "nearest", "bicubic")
                           for padding in ("zeros", "border", "reflection")
                           for aligned in (True, False)),
        (rand(2, 3, 6, 7), torch.rand(2, 4, 5, 2, generator=_random) * 2.6 - 1.3),
    ),
    "cumsum": (lambda x, i, m: (x.cumsum(1), i.int().cumsum(0), m.cumsum(1),
                                x.cumsum(0, dtype=torch.float64)),
               (rand(3, 4), torch.arange(12).reshape(3, 4), rand(3, 4) > 0)),
    "ties": (
        lambda x: (x.argmax(1), x.argmin(0), x.argmax(), x.max(1), x.sort(1, descending=True),
                   x.topk(2, 1).values, x.argsort(dim=1, stable=True)),
        (torch.tensor([[1.0, 3, 3, 2], [5, 5, 5, 5], [0, -1, -1, 0]]),),
    ),
    "spectrum": (
        lambda x, w: (torch.stft(x, 64, 16, window=w, return_complex=True).abs(),
                      torch.istft(torch.stft(x, 64, 16, window=w, return_complex=True), 64, 16,
                                  window=w)),
        (rand(2, 640), torch.hann_window(64)),
    ),
    "convolutions": (
        lambda a, b, c, d, x: (a(x), b(x), c(x), d(x)),
        (rand(2, 4, 9, 8),),
        *(nn.Conv2d(4, 8, 3, groups=4, padding="same"), nn.ConvTranspose2d(4, 4, 3, 2, 1, 1)),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, 4, padding="same"),
    ),
    "linear_by_rank": (lambda a, x: (a(x), a(x[0]), a(x[0, 0])), (rand(2, 5, 4),), nn.Linear(4, 3)),
    "projected_lstm": (lambda a, x: a(x), (rand(5, 2, 4),), nn.LSTM(4, 3, proj_size=2)),
    "cells": (lambda a, b, c, x: (a(x), b(x), c(x)), (rand(2, 4),), nn.LSTMCell(4, 3),
              nn.GRUCell(4, 3), nn.RNNCell(4, 3)),
    "empty_slices": (
        lambda x: (x[:, :0].reshape(0, 7), torch.cat([x, x[:, :0]], 1)), (rand(2, 3),)),
    "channels_last": (
        lambda x: (x.mean((2, 3)), F.pad(x, (1, 1, 0, 0)), F.pixel_unshuffle(x[..., :12, :6], 2),
                   x.flatten(1)),
        (rand(2, 5, 13, 7).to(memory_format=torch.channels_last),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_written_file_computes_what_eager_computes(name: str, write: Any) -> None:
    function, args, *layers = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = write(Calls(function, *layers), *args)

        tolerance = 1e-3 if name == "mixed_dtypes" else 1e-4
        written.assert_computes(args, tolerance)


RECURRENT = {
    "lstm": nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
    "gru": nn.GRU(4, 3, 2, bidirectional=True, batch_first=True),
    "rnn": nn.RNN(4, 3, 2, batch_first=True, bidirectional=True),
    "rnn_relu": nn.RNN(4, 3, batch_first=True, nonlinearity="relu", bias=False),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layer_takes_any_length(name: str, write: Any) -> None:
    module = Calls(lambda layer, x: layer(x), RECURRENT[name])

    written = write(
        module,
        rand(2, 7, 4),
        dynamic={"tensors_0.0": "batch:1..8", "tensors_0.1": "time:1..64"},
    )

    for shape in ((2, 7, 4), (3, 19, 4), (1, 1, 4)):
        written.assert_computes((rand(*shape),), 1e-4)


def test_attention_takes_any_batch_and_length(write: Any) -> None:
    def attend(x: Tensor) -> Any:
        batch, time, width = x.shape
        heads = x.view(batch, time, 2, width // 2).transpose(1, 2)
        attended = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, time, width), torch.arange(time)

    written = write(
        Calls(attend),
        rand(2, 6, 8),
        dynamic={"tensors_0.0": "batch:1..8", "tensors_0.1": "time:2..64"},
    )

    for shape in ((2, 6, 8), (3, 11, 8), (1, 2, 8)):
        written.assert_computes((rand(*shape),), 1e-4)


def test_resize_by_scale_takes_any_size(write: Any) -> None:
    module = Calls(lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear"),
                              F.adaptive_avg_pool2d(x, 1)))  # fmt: skip

    written = write(
        module,
        rand(1, 2, 12, 10),
        dynamic={"tensors_0.2": "height:4..64", "tensors_0.3": "width:4..64"},
    )

    for shape in ((1, 2, 12, 10), (1, 2, 7, 31)):
        written.assert_computes((rand(*shape),), 1e-4)
