"""ResNet-50 and ViT-B on 224 x 224 images: built for RTX GPUs, and their networks evaluated.

The whole check of parity takes a minute a model and stands in docs/tensorrt.md; here the network is
computed once, on a batch other than the example's. The smaller networks and the trained
checkpoints have the whole check, in tests/test_every_format.py.
"""

from __future__ import annotations

import isomorph
import pytest
import torch

# Farthest from eager, as a share of the largest output: some roundings of the precision.
ALLOWED = {"fp32": 1e-4, "fp16": 2e-2}


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_it_is_built_and_its_network_computes_what_eager_does(name, exported, tmp_path):
    import torchvision

    torch.manual_seed(0)
    module = torchvision.models.get_model(name, weights=None).eval()
    if name == "vit_b_16":  # initialised to zero, which would hide everything before it
        torch.nn.init.normal_(module.heads.head.weight, std=0.02)
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        wanted = module(x)
    for precision, allowed in ALLOWED.items():
        artifact = exported(
            module,
            inputs=["x=1x3x224x224"],
            dynamic={"x.0": "batch:1..4"},
            precision=precision,
            validate=False,
            output=tmp_path / precision / "net.rtx.engine",
        )
        assert artifact.path.stat().st_size > 10_000_000
        with isomorph.load(artifact.path) as session:
            assert session.evidence.kind == "evaluated"
            (found,) = session.run({"x": x.numpy()}).values()
        far = (torch.from_numpy(found) - wanted).abs().max() / wanted.abs().max()
        assert far < allowed, (precision, float(far))
