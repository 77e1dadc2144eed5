"""Nets whose operators are broken one at a time, to see them found."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Convolution, batch norm, layer norm, GELU and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(8, 5)
        self.norm = nn.LayerNorm(5)
        self.act = nn.GELU()
        self.last = nn.Linear(5, 6)
        awake(self)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn(self.conv(x)))
        y = self.fc(y)
        y = self.norm(y)
        y = self.act(y)
        return self.last(y).softmax(-1)


class Block(nn.Module):
    """Attention with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(batch, length, 3, 2, 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(batch, length, width)
        return x + self.out(y)


class Attention(nn.Module):
    """Two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        awake(self)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.tanh(x).mean(1)


def awake(net: nn.Module) -> None:
    """Values that make every operator count, always the same."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("running_var", "norm.weight", "bn.weight")):
                tensor.uniform_(0.5, 2, generator=generator)
            elif tensor.is_floating_point():
                tensor.normal_(0, 0.5, generator=generator)
