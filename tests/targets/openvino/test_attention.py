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
from isomorph.targets.openvino import convert
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn


class FusedAttention(nn.Module):
    """Query, key and value are slices of one permuted tensor, as in timm's ViTs."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(8 * heads, 24 * heads)
        self.out = nn.Linear(8 * heads, 8 * heads)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, 8).permute(2, 0, 3, 1, 4)
        scores = (q * 8**-0.5) @ k.transpose(-2, -1) if self.by_hand else None
        if scores is not None:
            mixed = scores.softmax(-1) @ v
        else:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        found: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return found

    by_hand = False


def errors(folder: Path, heads: int, sizes: list[int], by_hand: bool = False) -> list[float]:
    """Relative RMS errors of a file that is called with these numbers of tokens in turn."""
    import openvino

    torch.manual_seed(0)
    module = FusedAttention(heads).eval()
    module.by_hand = by_hand
    dynamic = {"x.1": "tokens:1..64"} if len(sizes) > 1 else None
    graph = isomorph.trace(module, args=(torch.randn(2, sizes[0], 8 * heads),), dynamic=dynamic)
    path = OpenVinoTarget().convert(graph, OpenVinoOptions(), folder, "net").path
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = []
    for size in sizes:
        x = torch.randn(2, size, 8 * heads)
        wanted = module(x).detach().numpy()
        off = compiled([x.numpy()])[0] - wanted
        found.append(float(np.sqrt(np.mean(off**2) / np.mean(wanted**2))))
    return found


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("heads", [2, 3, 4, 8])
def test_as_many_tokens_as_heads(heads: int, by_hand: bool, tmp_path: Path) -> None:
    assert max(errors(tmp_path, heads, [heads], by_hand)) < 1e-5


@pytest.mark.parametrize("by_hand", [False, True])
def test_calls_with_more_and_more_tokens(by_hand: bool, tmp_path: Path) -> None:
    assert max(errors(tmp_path, 4, [5, 4, 15, 16, 33, 64], by_hand)) < 1e-5


def test_the_fault_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard; when this fails, OpenVINO has mended it and the guard can go."""
    from isomorph.targets.openvino import prepare

    monkeypatch.setattr(convert, "guard_attention", lambda model: None)
    monkeypatch.setattr(prepare, "_DECOMPOSED", set())
    assert max(errors(tmp_path, 4, [4])) > 0.01
