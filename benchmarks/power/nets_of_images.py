"""Small networks over images and volumes, in a few layers each: grids, pools, heads, borders."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch users know


class UNet(nn.Module):
    """Two levels with skip connections; grows by resizing or by transposed convolution."""

    def __init__(self, transposed: bool = False) -> None:
        super().__init__()
        self.down = nn.ModuleList(self._block(a, b) for a, b in ((3, 8), (8, 16), (16, 32)))
        self.up = nn.ModuleList(self._block(a, b) for a, b in ((48, 16), (24, 8)))
        sizes = (32, 16) if transposed else ()
        self.grow = nn.ModuleList(nn.ConvTranspose2d(n, n, 2, stride=2) for n in sizes)
        self.head = nn.Conv2d(8, 4, 1)

    @staticmethod
    def _block(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.SiLU())

    def _grow(self, level: int, x: Tensor) -> Tensor:
        if self.grow:
            return self.grow[level](x)
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=level == 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        b = self.up[0](torch.cat([b, self._grow(0, c)], 1))
        return self.head(self.up[1](torch.cat([a, self._grow(1, b)], 1)))


class Volume(nn.Module):
    """Three-dimensional convolutions with instance norm and trilinear growth."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 6, 3, padding=1), nn.Conv3d(6, 6, 3, padding=1)
        self.norm = nn.InstanceNorm3d(6, affine=True)
        self.head = nn.Conv3d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.leaky_relu(self.norm(self.a(x)), 0.2)
        b = F.elu(self.b(F.avg_pool3d(a, 2)))
        return self.head(torch.cat([a, F.interpolate(b, scale_factor=2, mode="trilinear")], 1))


class Backbone(nn.Module):
    """A few convolutions that halve an image four times."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU6(),
            nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.Hardswish(),
        )  # fmt: skip
        self.next = nn.Sequential(
            nn.Conv2d(width, width, 3, 2, 1), nn.GroupNorm(4, width), nn.Mish()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = self.stem(x)
        return a, self.next(a)


class AnchorHead(nn.Module):
    """Boxes decoded from anchors as in SSD: centres, log sizes, clipped; scores beside them."""

    def __init__(self, anchors: int = 3, classes: int = 4) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.boxes = nn.Conv2d(16, 4 * anchors, 3, padding=1)
        self.scores = nn.Conv2d(16, classes * anchors, 3, padding=1)
        self.classes = classes
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        centres = (torch.stack([x, y], -1).reshape(-1, 1, 2) + 0.5) * 8
        sizes = torch.tensor([[8.0, 8.0], [16.0, 12.0], [12.0, 20.0]])
        grid = torch.cat([centres.expand(-1, 3, 2), sizes.expand(64, -1, -1)], -1)
        self.register_buffer("anchors", grid.reshape(-1, 4), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, _ = self.backbone(x)
        a = F.interpolate(a, size=(8, 8), mode="nearest")
        d = self.boxes(a).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        s = self.scores(a).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes)
        centre = self.anchors[:, :2] + d[..., :2] * 0.1 * self.anchors[:, 2:]
        size = self.anchors[:, 2:] * (0.2 * d[..., 2:]).clamp(max=4.135).exp()
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).clamp(0, 64)
        return boxes, s.softmax(-1)


class FcosHead(nn.Module):
    """Distances to four sides from every place of two levels, centredness, and a label."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.lateral = nn.Conv2d(16, 16, 1)
        self.tower = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(8, 16), nn.ReLU())
        self.sides, self.centre = nn.Conv2d(16, 4, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)
        self.label = nn.Conv2d(16, 5, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = self.backbone(x)
        a = self.lateral(a) + F.interpolate(b, size=a.shape[-2:], mode="nearest")
        sides, scores = [], []
        for level, value in enumerate((a, b)):
            t = self.tower(value)
            stride = 4 * 2**level
            sides.append((F.relu(self.sides(t)) * self.scales[level] * stride).flatten(2))
            scores.append((self.label(t).sigmoid() * self.centre(t).sigmoid()).sqrt().flatten(2))
        score = torch.cat(scores, -1)
        return torch.cat(sides, -1), score, score.argmax(1)


class Mixer(nn.Module):
    """Patches mixed over places and over channels in turn."""

    def __init__(self, width: int = 24, places: int = 16) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(places, places), nn.GELU(), nn.Linear(places, places))
        self.channels = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(x.mean(1))


class SuperResolution(nn.Module):
    """Edge padding, leaky activations and a pixel shuffle over a bicubic base."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1, padding_mode="replicate")
        self.b = nn.Conv2d(16, 16, 3, padding=1)
        self.c = nn.Conv2d(16, 12, 3, padding=1)
        self.slope = nn.PReLU(16)

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.a(x), 0.1)
        y = y + self.slope(self.b(y))
        base = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return F.pixel_shuffle(self.c(y), 2) + base


class StyleTransfer(nn.Module):
    """Reflected borders and instance norm; the result is squeezed into a range of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 5), nn.Conv2d(8, 8, 3, stride=2)
        self.c = nn.Conv2d(8, 3, 3)
        self.norm = nn.InstanceNorm2d(8, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.a(F.pad(x, (2, 2, 2, 2), mode="reflect"))))
        y = F.elu(self.b(F.pad(y, (1, 1, 1, 1), mode="reflect")), 0.7)
        y = F.interpolate(y, scale_factor=2, mode="nearest")
        return (self.c(F.pad(y, (1, 1, 1, 1), mode="reflect")).tanh() * 127.5 + 127.5).clamp(5, 250)


class FakeQuantised(nn.Module):
    """Rounds its weights' products to steps as quantisation-aware training does."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8 * 49, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.hardtanh(self.a((x * 16).round() / 16), -3, 3)
        z = self.b(F.avg_pool2d(y, 3, 2, 1).flatten(1)) if y.shape[-1] == 14 else self.b(
            F.adaptive_avg_pool2d(y, 7).flatten(1)
        )  # fmt: skip
        return z, z.argmax(-1)


class Pooling(nn.Module):
    """Every way of pooling: borders counted or not, ceil mode, powers, largest and smallest."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(24, 12, 1)
        self.head = nn.Linear(36, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.a(x))
        inside = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        border = F.avg_pool2d(x, 3, 2, 1, count_include_pad=True)
        y = self.b(torch.cat([inside, border], 1))
        y = F.max_pool2d(y, 3, 1, 1) - F.hardsigmoid(y)
        return self.head(torch.cat([y.amax((2, 3)), y.amin((2, 3)), y.mean((2, 3))], 1))


class Sampler(nn.Module):
    """A spatial transformer: an affine grid that the network chooses, then sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.a = nn.Linear(3 * 16, 6), nn.Conv2d(3, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.where(F.adaptive_avg_pool2d(x, 4).flatten(1)).view(-1, 2, 3)
        theta = theta * 0.1 + torch.eye(2, 3)
        grid = F.affine_grid(theta, [x.shape[0], 3, 24, 24], align_corners=False)
        return self.a(F.grid_sample(x, grid, align_corners=False, padding_mode="border"))


class Autoencoder(nn.Module):
    """Down by strides to a code with its spread, and back by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 4, 2, 1), nn.Conv2d(8, 16, 4, 2, 1)
        self.code, self.back = nn.Linear(16 * 49, 16), nn.Linear(8, 16 * 49)
        self.c = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.d = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.leaky_relu(self.b(F.leaky_relu(self.a(x), 0.2)), 0.2)
        mean, spread = self.code(y.flatten(1)).chunk(2, -1)
        z = self.back(mean * (0.5 * spread).exp()).view(-1, 16, 7, 7)
        return self.d(F.relu(self.c(z))).sigmoid(), mean


class Denoiser(nn.Module):
    """A diffusion step: time as sines, group norms, scale and shift, self-attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2 * width))
        self.a, self.b = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(100.0) * torch.arange(8) / 8)
        angle = t[:, None] * rates
        scale, shift = self.time(torch.cat([angle.sin(), angle.cos()], -1)).chunk(2, -1)
        x = self.a(x)
        y = self.norm1(x) * (1 + scale[..., None, None]) + shift[..., None, None]
        x = x + self.b(F.silu(y))
        q, k, v = self.qkv(self.norm2(x)).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v).squeeze(1).transpose(1, 2)
        return self.out(x + mixed.reshape(x.shape))
