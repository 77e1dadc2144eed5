"""Small networks over sequences, sets, graphs and tables, in a few layers each."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch users know


class Recurrent(nn.Module):
    """Two layers, both directions, with a linear head on every step."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0])


class TokenEncoder(nn.Module):
    """Token ids and a padding mask through attention written out, with scores per token."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(100, width)
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 6)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        x = self.table(ids)
        y = self.norm(x)
        q, k, v = self._split(self.q(y)), self._split(self.k(y)), self._split(self.v(y))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill((keep == 0)[:, None, None], -1e9)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.head(x + self.down(F.gelu(self.up(x), approximate="tanh")))


class Decoder(nn.Module):
    """A causal language model: learnt positions, two blocks, tied embedding."""

    def __init__(self, width: int = 32, depth: int = 2, steps: int = 12) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(80, width), nn.Embedding(steps, width)
        layer = {"d_model": width, "nhead": 4, "dim_feedforward": 64, "batch_first": True}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(**layer, activation="gelu", norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((steps, steps), float("-inf")).triu(1), False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.norm(x) @ self.table.weight.T


class RmsLlama(nn.Module):
    """RMS norm, rotary positions, grouped keys and a gated MLP, as in current language models."""

    def __init__(self, width: int = 32, heads: int = 4, steps: int = 10) -> None:
        super().__init__()
        self.heads = heads
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.q, self.kv = nn.Linear(width, width, False), nn.Linear(width, width, False)
        self.o = nn.Linear(width, width, False)
        self.gate, self.up = (nn.Linear(width, 48, False) for _ in range(2))
        self.down = nn.Linear(48, width, False)
        angle = torch.arange(steps)[:, None] * 10000.0 ** (-torch.arange(4) / 4.0)
        self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)

    @staticmethod
    def _norm(x: Tensor, scale: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def _turn(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        y = self._norm(x, self.scale1)
        q = self._turn(self.q(y).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        k, v = self.kv(y).unflatten(-1, (4, -1)).transpose(1, 2).chunk(2, 1)
        k, v = self._turn(k.repeat_interleave(2, 1)), v.repeat_interleave(2, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self._norm(x, self.scale2)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Waves(nn.Module):
    """Dilated, gated convolutions over audio, padded on the left as causal ones are."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 8, stride=4)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=d) for d in (1, 2, 4))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Conv1d(width, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for gate, dilation in zip(self.gates, (1, 2, 4), strict=True):
            a, b = gate(F.pad(x, (2 * dilation, 0))).chunk(2, 1)
            x = x + a.tanh() * b.sigmoid()
        return self.head(F.softplus(self.norm(x))).log_softmax(1)


class SpeechEncoder(nn.Module):
    """Strided convolutions, a depthwise convolution module and attention, as in a conformer."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, width, 3, stride=2, padding=1)
        self.norm1, self.norm2, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.wide = nn.Conv1d(width, 2 * width, 1)
        self.depth = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.batch, self.point = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).transpose(1, 2)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.wide(self.norm2(x).transpose(1, 2)), 1)
        return self.last(x + self.point(F.silu(self.batch(self.depth(y)))).transpose(1, 2))


class GraphNet(nn.Module):
    """Messages along a weighted adjacency, normalised by degree; logs and cumulative sums."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, width), nn.Linear(width, width)
        self.head = nn.Linear(2 * width, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        weight = edges.abs() + 0.1
        weight = weight / weight.sum(-1, keepdim=True)
        x = F.selu(weight @ self.a(nodes))
        x = F.celu(weight @ self.b(x), 1.3)
        return self.head(torch.cat([x.cumsum(1), (x.abs() + 1).log()], -1))


class Radiance(nn.Module):
    """Positions encoded by sines, an MLP with a skip, density and colour."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(27, 32), nn.Linear(59, 32)
        self.density, self.colour = nn.Linear(32, 1), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.tanh()
        waves = torch.cat([x * 2.0**k for k in range(4)], -1)
        code = torch.cat([x, waves.sin(), waves.cos()], -1)
        y = F.relu(self.a(code))
        y = F.relu(self.b(torch.cat([y, code], -1)))
        return F.softplus(self.density(y)), self.colour(y).sigmoid()


class Tabular(nn.Module):
    """Columns of numbers and categories, a cross layer, mixed experts."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 6) for _ in range(3))
        self.cross, self.gate = nn.Linear(26, 26), nn.Linear(26, 3)
        self.experts = nn.ModuleList(nn.Linear(26, 5) for _ in range(3))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        x = torch.cat([numbers, *(t(codes[:, i]) for i, t in enumerate(self.tables))], -1)
        x = x * self.cross(x) + x
        x = x / (1 + x.norm(dim=-1, keepdim=True))
        gate = self.gate(x).softmax(-1)
        mixed = torch.stack([F.softsign(e(x)) for e in self.experts], -1) * gate.unsqueeze(1)
        return mixed.sum(-1)


class PointCloud(nn.Module):
    """A shared MLP over points, the largest over all of them, distances to the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 16, 1), nn.Conv1d(16, 24, 1)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        far = (x * x).sum(1, keepdim=True).sqrt()
        y = self.b(F.relu(self.norm(self.a(torch.cat([x, far], 1)))))
        return self.head(y.max(-1).values)


class Retrieval(nn.Module):
    """Two towers and their cosines, the best of them, a margin."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(12, 16), nn.Linear(12, 16)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = F.normalize(self.left(a), dim=-1), F.normalize(self.right(b), dim=-1)
        scores = self.scale.exp() * (a @ b.T)
        top = scores.topk(3, -1)
        return scores.log_softmax(-1), top.indices
