"""The models that a target is tried on: small, awake (every weight matters), the same each time."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...exporter.capture import Capture, capture
from ...exporter.examples import ExampleCall
from ...exporter.signature import parse_dynamic_entry
from ...progress import Silent

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from ...validation.reference import Reference

__all__ = [
    "MADE_UP",
    "MODELS",
    "Model",
    "captured",
    "example",
    "lowered",
    "made_up",
    "reference",
]


class Conv(nn.Module):
    """Images [batch, 3, 16, 16] to scores [batch, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish())
        self.wide = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stem(x), 2)
        x = self.wide(x + self.deep(x))
        x = functional.adaptive_avg_pool2d(torch.sigmoid(x), 1).flatten(1)
        scores: Tensor = self.head(x)
        return scores


class Transformer(nn.Module):
    """Tokens [batch, 6, 16] and a mask of those to attend to [batch, 6] to tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.mix = nn.Linear(16, 16)
        self.after = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        parts = self.qkv(self.before(tokens)).reshape(batch, length, 3, 2, width // 2)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        bias = torch.zeros_like(mask, dtype=tokens.dtype)
        bias = bias.masked_fill(~mask, torch.finfo(tokens.dtype).min)[:, None, None, :]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        tokens = tokens + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        mixed: Tensor = self.down(functional.gelu(self.up(self.after(tokens))))
        return tokens + mixed


class Recurrent(nn.Module):
    """Sequences [batch, 7, 6] through two LSTM layers to the last state's scores [batch, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(x)[0][:, -1])
        return scores


class UNet(nn.Module):
    """Images [batch, 3, 16, 16] down, up again two ways, and to a mask [batch, 2, 16, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.third = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Conv2d(14, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        fine = torch.relu(self.first(image))
        middle = torch.relu(self.second(fine))
        coarse = middle + self.up(torch.relu(self.third(middle)))
        grown = functional.interpolate(
            coarse, scale_factor=2.0, mode="bilinear", align_corners=False
        )
        mask: Tensor = self.last(torch.cat([fine, grown], 1))
        return mask


class Embedding(nn.Module):
    """Token ids [batch, 6] (int64) to scores [batch, 4] and the best of them [batch]."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        scores = self.head(torch.tanh(self.table(ids)).mean(1))
        return {"scores": scores, "best": scores.argmax(-1)}


class Outputs(nn.Module):
    """Nested inputs and outputs; several of one shape; float32, int64, bool; one 0-d."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, data: dict[str, Tensor], pair: tuple[Tensor, Tensor]) -> dict[str, Any]:
        x, (ids, keep) = data["x"], pair
        first, second = self.first(x), self.second(x)
        return {
            "second": second,
            "first": first,
            "chosen": torch.where(keep, ids, -ids),
            "few": (ids < 1) & keep,
            "total": (first * second).mean(),
            "parts": (first - second, [torch.tanh(first)]),
        }


class Aliases(nn.Module):
    """An input handed through, and one value returned twice."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        value = torch.tanh(x)
        return {"passed": x, "one": value, "again": value}


class Mutation(nn.Module):
    """Writes to an input, as a cache is written to."""

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        state.add_(x)
        return state * 2 - x


class Integers(nn.Module):
    """Results beyond 32 bits from int64 inputs."""

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        return {"wide": ids * 3_000_000_001 + 1, "next": ids[1:] + 1}


class Sizes(nn.Module):
    """Two dynamic dims: signals [batch, 3, time] to [batch, time, 4] and [batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        steps = torch.relu(self.conv(x)).transpose(1, 2)
        batch, time, width = steps.shape
        mixed = self.mix(steps.reshape(batch * time, width)).reshape(batch, time, width)
        return {"steps": mixed + steps, "mean": mixed.mean(1)}


@dataclass(frozen=True)
class Model:
    """A module with an example call; `batched` are the inputs whose axis 0 is the batch.

    `dynamic` are axes that stay free even for a target that declares `dynamic = False`,
    `ranges` the values that integer inputs take.
    """

    module: Callable[[], nn.Module]
    example: Callable[[], tuple[Any, ...]]
    batched: tuple[str, ...] = ()
    dynamic: Mapping[str, str] | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None

    def build(self) -> nn.Module:
        """The module with its weights, the same at every call; in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return _awake(self.module())


def _rand(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def _ids(*shape: int) -> Tensor:
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(3))


def _flags(*shape: int) -> Tensor:
    return (_ids(*shape) % 3 > 0).index_fill(-1, torch.tensor([0]), True)


MODELS: dict[str, Model] = {
    "conv": Model(Conv, lambda: (_rand(2, 3, 16, 16),), ("x",)),
    "transformer": Model(Transformer, lambda: (_rand(2, 6, 16), _flags(2, 6)), ("tokens", "mask")),
    "lstm": Model(Recurrent, lambda: (_rand(2, 7, 6),), ("x",)),
    "unet": Model(UNet, lambda: (_rand(2, 3, 16, 16),), ("image",)),
    "embedding": Model(Embedding, lambda: (_ids(2, 6),), ("ids",)),
    "outputs": Model(
        Outputs,
        lambda: ({"x": _rand(3, 4)}, (_ids(3, 4), _flags(3, 4))),
        ranges={"pair_0": (-99, 99)},
    ),
    "aliases": Model(Aliases, lambda: (_rand(3, 4),)),
    "mutation": Model(Mutation, lambda: (_rand(3, 4), _rand(3, 4) + 1)),
    "integers": Model(Integers, lambda: (_ids(5),), ranges={"ids": (-(2**60), 2**60)}),
    "sizes": Model(
        Sizes,
        lambda: (_rand(2, 3, 8),),
        dynamic={"x.0": "batch:1..5", "x.2": "time:3..17"},
    ),
}


def _awake(module: nn.Module) -> nn.Module:
    """Random weights large enough, and statistics odd enough, that every part matters."""
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point():
                continue
            noise = torch.randn(value.shape)
            if name.endswith("running_var"):
                value.copy_(0.5 + noise.abs())
            elif value.dim() > 1:
                value.copy_(noise / value[0].numel() ** 0.5)
            else:
                value.add_(0.2 * noise)
    return module.eval()


@functools.cache
def captured(name: str, *, dynamic: bool = True) -> tuple[nn.Module, Capture]:
    """A model's module and its graph; `dynamic` lets the batch vary."""
    model = MODELS[name]
    module = model.build()
    axes = dict(model.dynamic or {})
    if dynamic:
        axes |= {f"{tensor}.0": "batch:1..5" for tensor in model.batched}
    requests = [parse_dynamic_entry(key, value) for key, value in axes.items()]
    example = ExampleCall(model.example(), {}, True)
    return module, capture(module, example, dynamic=requests, ranges=model.ranges)


def example(name: str) -> dict[str, Tensor]:
    """A model's example inputs by name."""
    return captured(name)[1].inputs


@functools.cache
def lowered(name: str, precision: str, *, dynamic: bool = True) -> Graph:
    """A model's graph in that precision."""
    graph = captured(name, dynamic=dynamic)[1].graph
    if precision == "fp32":
        return graph
    from ...exporter.precision import lower_precision

    return lower_precision(graph, precision)


@functools.cache
def reference(name: str, precision: str, *, dynamic: bool = True) -> Reference:
    """Truth and noise floor of a model in that precision."""
    from ...validation.checking import make_reference

    module, found = captured(name, dynamic=dynamic)
    graph = lowered(name, precision, dynamic=dynamic)
    return make_reference(found, module, [], Silent(), graph)


# An operator that no format knows. It is written to a file of its own, since the lines
# that Isomorph shows are those outside of site-packages.
MADE_UP = """\
import torch
from torch import nn

if not hasattr(torch.ops.isomorph_conformance, "made_up"):

    @torch.library.custom_op("isomorph_conformance::made_up", mutates_args=())
    def made_up(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0)

    @made_up.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.isomorph_conformance.made_up(x)  # the line


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner = nn.Linear(4, 4), Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(self.before(x)))
"""


def made_up(folder: Path) -> tuple[Graph, str]:
    """A graph with an operator that no format knows, and the `file:line` of its call."""
    path = folder / "made_up.py"
    path.write_text(MADE_UP)
    spec = importlib.util.spec_from_file_location("isomorph_conformance_made_up", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    line = MADE_UP[: MADE_UP.index("# the line")].count("\n") + 1
    found = capture(loaded.Net().eval(), ExampleCall((_rand(3, 4),), {}, True))
    return found.graph, f"made_up.py:{line}"
