"""`torch.linspace` of a dynamic length stays dynamic, and is what eager makes of it."""

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError
from torch import nn


class Ramp(nn.Module):
    def __init__(self, start, end, **more):
        super().__init__()
        self.ends, self.more = (start, end), more

    def forward(self, x):
        return x * 0 + torch.linspace(*self.ends, x.shape[1], **self.more)


def captured(module, x):
    return isomorph.trace(module, args=(x,), dynamic={"x.1": "t:1..33"})


@pytest.mark.parametrize("ends", [(0, 1), (-1.0, 2.5), (3, -3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_length_gives_the_values_of_eager(ends, dtype):
    module = Ramp(*ends, dtype=dtype)
    graph = captured(module, torch.randn(2, 5, dtype=dtype))
    for length in (1, 2, 3, 17, 33):
        x = torch.randn(2, length, dtype=dtype)
        found = graph.run({"x": x})["output_0"]
        assert found.dtype == dtype
        torch.testing.assert_close(found, module(x), rtol=2e-7, atol=3e-7)


def test_a_fixed_length_stays_the_operator():
    graph = isomorph.trace(Ramp(0, 1), args=(torch.randn(2, 5),))
    assert any("linspace" in str(node.target) for node in graph.program.graph.nodes)


def test_integers_are_refused_as_before():
    with pytest.raises(ConversionError, match=r"t \(fixed to 5\)"):
        captured(Ramp(0, 9, dtype=torch.int64), torch.randn(2, 5))
