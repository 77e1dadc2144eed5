"""How far correct artifacts are from the truth, in noise floors: evidence for the rule's limits.

    python benchmarks/noise_floor.py [--models vit_tiny,lstm] [--write]

A dozen architectures with random, awake weights are exported to ONNX and run on
ONNX Runtime, optimised and not. For every output and case the ratio of the
artifact's error to the noise floor is taken (docs/parity.md). A ratio above the
limits on these, which are right, is a false alarm. `--write` puts the table into
docs/parity.md. Needs torchvision and timm.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from isomorph.exporter.source import Request, open_source
from isomorph.progress import Silent
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import parity
from isomorph.validation.checking import make_reference
from isomorph.validation.verdict import PEAK_LIMIT, RMS_LIMIT
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "models"))
from small_nets import SmallConvNet, SmallTransformer, awake

PARITY = Path(__file__).resolve().parents[1] / "docs" / "parity.md"


class Recurrent(nn.Module):
    """Two layers, both directions, with a linear head on every step."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


class TokenEncoder(nn.Module):
    """Token ids and a padding mask through nn.TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 3)

    def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.table(ids), src_key_padding_mask=keep == 0))


class UNet(nn.Module):
    """Two levels with skip connections and bilinear upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(self._block(a, b) for a, b in ((3, 8), (8, 16), (16, 32)))
        self.up = nn.ModuleList(self._block(a, b) for a, b in ((48, 16), (24, 8)))
        self.head = nn.Conv2d(8, 4, 1)

    @staticmethod
    def _block(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](nn.functional.max_pool2d(a, 2))
        c = self.down[2](nn.functional.max_pool2d(b, 2))
        b = self.up[0](torch.cat([b, self._grow(c)], 1))
        return self.head(self.up[1](torch.cat([a, self._grow(b)], 1)))

    @staticmethod
    def _grow(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")


def _timm(name: str) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False)


def _torchvision(name: str) -> nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None)


_IMAGE = ("2x3x64x64",)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "small_conv_net": (SmallConvNet, ("2x3x24x24",)),
    "small_transformer": (SmallTransformer, ("2x10x16",)),
    "lstm": (lambda: Recurrent(nn.LSTM), ("2x9x16",)),
    "gru": (lambda: Recurrent(nn.GRU), ("2x9x16",)),
    "token_encoder": (TokenEncoder, ("ids=2x11:int64", "keep=2x11:int64:1..1")),
    "unet": (UNet, ("2x3x32x32",)),
    "resnet18": (lambda: _torchvision("resnet18"), _IMAGE),
    "mobilenet_v3_small": (lambda: _torchvision("mobilenet_v3_small"), _IMAGE),
    "shufflenet_v2": (lambda: _torchvision("shufflenet_v2_x0_5"), _IMAGE),
    "vit_tiny": (lambda: _timm("test_vit"), ("2x3x160x160",)),
    "convnext": (lambda: _timm("test_convnext"), _IMAGE),
    "mobilevit": (lambda: _timm("mobilevit_xxs"), ("2x3x64x64",)),
    "efficientnet": (lambda: _timm("test_efficientnet"), _IMAGE),
}


@dataclass(frozen=True)
class Row:
    """One model's ratios: worst peak and RMS, optimised and not, over `checks` comparisons."""

    model: str
    checks: int
    optimised: tuple[float, float]
    plain: tuple[float, float]
    alarms: int
    seconds: float


def study(name: str, folder: Path) -> Row:
    start = time.perf_counter()
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    source = open_source(awake(make()), Request(inputs=inputs))
    graph = source.capture.graph
    target = OnnxTarget()
    artifact = target.convert(graph, OnnxOptions(), folder, name)
    reference = make_reference(source.capture, source.module, (), Silent())
    worst, checks, alarms = [], 0, 0
    for optimized in (True, False):
        with target.open(artifact.path, optimized=optimized) as session:
            report = parity.judge(graph, reference, session)
        measured = [o for o in report.outputs if o.peak_ratio is not None]
        worst.append(
            (
                max(o.peak_ratio or 0.0 for o in measured),
                max(o.rms_ratio or 0.0 for o in measured),
            )
        )
        checks += len(report.cases) * len(report.outputs)
        alarms += sum(o.verdict == "fail" for o in report.outputs)
    return Row(name, checks, worst[0], worst[1], alarms, time.perf_counter() - start)


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"ONNX Runtime against the floor; limits: peak {PEAK_LIMIT:g}, RMS {RMS_LIMIT:g}.",
        "",
        "| model | checks | optimised: peak | RMS | not optimised: peak | RMS | false alarms |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r.model} | {r.checks} | {r.optimised[0]:.2f} | {r.optimised[1]:.2f} "
            f"| {r.plain[0]:.2f} | {r.plain[1]:.2f} | {r.alarms} |"
        )
    peak = max(max(r.optimised[0], r.plain[0]) for r in rows)
    rms = max(max(r.optimised[1], r.plain[1]) for r in rows)
    lines.append(
        f"| all {len(rows)} | {sum(r.checks for r in rows)} | worst {peak:.2f} | {rms:.2f} | | "
        f"| {sum(r.alarms for r in rows)} |"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--write", action="store_true", help="put the table into docs/parity.md")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            rows.append(study(name, Path(folder)))
            print(f"{name}: {rows[-1].seconds:.1f} s", file=sys.stderr)
    text = table(rows)
    print(text)
    if arguments.write:
        marks = r"(<!-- noise_floor:begin -->\n).*?(<!-- noise_floor:end -->)"
        page = PARITY.read_text()
        PARITY.write_text(re.sub(marks, lambda m: m[1] + text + "\n" + m[2], page, flags=re.S))


if __name__ == "__main__":
    main()
