"""What a half graph holds in float16 is float16 in the package, also beside numbers in the code."""

from __future__ import annotations

import pytest
import torch
from isomorph.exporter.precision import lower_precision
from torch import nn


class BeforeAConvolution(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.first = nn.Conv2d(3, 4, 1)
        self.second = nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.function(self.first(x)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.pad(x, [1, 1, 1, 1], "reflect"),
        lambda x: nn.functional.pad(x, [1, 1, 1, 1], value=0.5),
        lambda x: x * 0.5,
        lambda x: x + 2,
    ],
    ids=["reflected border", "filled border", "factor", "sum"],
)
def test_a_convolution_after_a_number_is_in_float16(write, captured, function):
    """coremltools 9.0 promotes the image to float32, and refuses the bias beside such weights."""
    graph = lower_precision(captured(BeforeAConvolution(function), torch.randn(2, 3, 8, 8)), "fp16")
    spec = write(graph).spec().mlProgram.functions["main"]
    made = {
        item.type: item.outputs[0].type.tensorType.dataType
        for item in spec.block_specializations[spec.opset].operations
    }
    assert made["conv"] == 10  # MIL's FLOAT16
