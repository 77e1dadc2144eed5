"""The attention fault of OpenVINO's CPU plug-in does not reach a written file.

See targets/openvino/attention.py. Files are loaded as users load them: no session of ours, no
configuration but the inference precision.
"""

from __future__ import annotations

from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch
from isomorph.targets.openvino import convert, prepare
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn


class FusedAttention(nn.Module):
    """Query, key and value are slices of one permuted tensor, as in timm's ViTs."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(8 * heads, 24 * heads)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(batch, tokens, width)


class Products(FusedAttention):
    """Attention by hand, with the heads in the batch, as in torch's own layers."""

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.reshape(batch, tokens, self.heads, 8)
            .transpose(1, 2)
            .reshape(batch * self.heads, tokens, 8)
            for part in self.qkv(x).chunk(3, -1)
        )
        mixed = torch.bmm((torch.bmm(q, k.transpose(1, 2)) * 8**-0.5).softmax(-1), v)
        mixed = mixed.reshape(batch, self.heads, tokens, 8)
        return mixed.transpose(1, 2).reshape(batch, tokens, width)


def errors(
    folder: Path, module: FusedAttention, sizes: list[int], dynamic: str = ""
) -> list[float]:
    """Relative RMS errors of a file that is called with these numbers of tokens in turn."""
    import openvino

    torch.manual_seed(0)
    width = 8 * module.heads
    example = torch.randn(2, 5 if dynamic else sizes[0], width)
    graph = isomorph.trace(
        module.eval(), args=(example,), dynamic={"x.1": dynamic} if dynamic else None
    )
    path = OpenVinoTarget().convert(graph, OpenVinoOptions(), folder, "net").path
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = []
    for size in sizes:
        x = torch.randn(2, size, width)
        wanted = module(x).detach().numpy()
        off = compiled([x.numpy()])[0] - wanted
        found.append(float(np.sqrt(np.mean(off**2) / np.mean(wanted**2))))
    return found


GROWING = [1, 4, 16, 64]


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_as_many_tokens_as_heads(heads: int, tmp_path: Path) -> None:
    assert max(errors(tmp_path, FusedAttention(heads), [heads])) < 1e-5


@pytest.mark.parametrize("kind", [FusedAttention, Products])
@pytest.mark.parametrize("dynamic", ["tokens", "tokens:1..64"])
def test_calls_that_grow_from_one_token(kind, dynamic: str, tmp_path: Path) -> None:
    assert max(errors(tmp_path, kind(4), GROWING, dynamic)) < 1e-5


def test_the_faults_are_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without each step; when this fails, OpenVINO has mended it and the step can go."""
    with monkeypatch.context() as undone:
        undone.setattr(convert, "guard_attention", lambda model: None)
        assert max(errors(tmp_path, Products(4), GROWING, "tokens")) > 0.01
    monkeypatch.setattr(prepare, "_DECOMPOSED", set())
    assert errors(tmp_path, FusedAttention(4), [4])[0] > 0.01
