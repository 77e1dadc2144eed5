"""ResNet-50 and ViT-B: built for RTX GPUs, and their networks evaluated, with a free batch.

On small images, for the time that the noise floor takes; docs/tensorrt.md has 224 x 224. The
smaller networks and the trained checkpoints are in tests/test_every_format.py.
"""

from __future__ import annotations

import pytest
import torch

SM = ("SM80", "SM86", "SM89", "SM120")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_it_is_built_and_its_network_passes(name, precision, exported):
    import torchvision

    torch.manual_seed(0)
    size = {"image_size": 64} if name == "vit_b_16" else {}
    module = torchvision.models.get_model(name, weights=None, **size)
    artifact = exported(
        module, inputs=["x=1x3x64x64"], dynamic={"x.0": "batch:1..2"}, precision=precision
    )
    assert artifact.verdict == "pass", artifact.report.reason
    assert artifact.evidence.kind == "evaluated"
    assert artifact.evidence.details["built for"] == ", ".join(SM)
