"""Models exported to ONNX, parsed, evaluated and held against eager PyTorch, in every precision.

Each with a batch that the export did not see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from isomorph.targets.tensorrt.evaluate.network import read_network
from isomorph.targets.tensorrt.parse import parse
from isomorph.targets.tensorrt.products import RTX
from torch import nn


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 8, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> Any:
        sequence, (hidden, cell) = self.rnn(x)
        return self.head(sequence[:, -1]), hidden, cell


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU()),
            *(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4), nn.AdaptiveAvgPool2d(1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x).flatten(1)


MASK = torch.arange(6).expand(3, 6) >= torch.tensor([[6], [4], [2]])
MODELS: dict[str, tuple[Any, list[str], tuple[torch.Tensor, ...]]] = {
    "lstm": (Lstm, ["x=2x5x4"], (torch.randn(3, 5, 4),)),
    "gru": (lambda: nn.GRU(4, 8, batch_first=True), ["input=2x5x4"], (torch.randn(3, 5, 4),)),
    "encoder": (Encoder, ["x=2x6x16", "mask=2x6:bool"], (torch.randn(3, 6, 16), MASK)),
    "convolutional": (Convolutional, ["x=2x3x16x16"], (torch.randn(3, 3, 16, 16),)),
}
# Of the largest value: rounding to 11 and to 8 bits of a few layers in a row.
TOLERANCES = {"fp32": 1e-6, "fp16": 2e-3, "bf16": 1.5e-2}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", TOLERANCES)
def test_the_network_computes_what_the_module_does(
    tmp_path: Path, name: str, precision: str
) -> None:
    torch.manual_seed(0)
    make, shapes, inputs = MODELS[name]
    module = make().eval()
    path = tmp_path / "net.onnx"
    first, *others = (text.split("=")[0] for text in shapes)
    isomorph.export(
        module,
        "onnx",
        inputs=shapes,
        dynamic={f"{first}.0": "batch:1..8", **{f"{other}.0": "batch" for other in others}},
        output=path,
        precision=precision,
        validate=False,
    )
    parsed = parse(RTX, path)
    network = read_network(parsed.module, parsed.network, parsed)
    given = {
        tensor.name: value.to(getattr(torch, tensor.dtype))
        for tensor, value in zip(network.inputs, inputs, strict=True)
    }
    with torch.no_grad():
        expected = module(*inputs)
    found = list(run_network(network, given).values())
    wanted = [expected] if isinstance(expected, torch.Tensor) else list(flat(expected))
    assert len(found) == len(wanted)
    for value, want in zip(found, wanted, strict=True):
        error = (value.float() - want).abs().max() / want.abs().max()
        assert error < TOLERANCES[precision]


def flat(values: Any) -> Any:
    for value in values:
        yield from flat(value) if isinstance(value, tuple) else (value,)
