"""A small transformer and a small conv net: factories that `--model` can name."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class SmallTransformer(nn.Module):
    """Float input [batch, 10, 16] to scores [batch, 5]."""

    def __init__(self, width: int = 16, heads: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class SmallConvNet(nn.Module):
    """Images [batch, 3, 24, 24] to scores [batch, 5], with reflected borders."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.norm = nn.BatchNorm2d(8)
        self.mix = nn.Conv2d(8, 8, 3, stride=2, padding=1, padding_mode="reflect")
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.gelu(self.mix(x)).mean(dim=(2, 3))
        return self.head(torch.relu(self.hidden(x)))


def awake(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights large enough, and statistics odd enough, that every part matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point():
                continue
            noise = torch.randn(value.shape, generator=generator)
            if name.endswith("running_mean"):
                value.copy_(0.1 * noise)
            elif name.endswith("running_var"):
                value.copy_(0.5 + torch.rand(value.shape, generator=generator))
            elif value.dim() > 1:
                value.copy_(noise / value[0].numel() ** 0.5)
            else:
                value.add_(0.1 * noise)
    return module.eval()
