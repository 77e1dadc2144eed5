"""Networks of timm, one of each family, pass as packages at fp32 and fp16, with a dynamic batch.

Small variants, on small images, some with fewer blocks: each operator of a family is there, and
the twelve and their references take seconds. Weights are random and awake, so every one counts.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.precision import lower_precision
from isomorph.exporter.signature import parse_dynamic
from isomorph.progress import Silent
from isomorph.targets.base import Signature
from isomorph.targets.coreml.options import CoreMlOptions
from isomorph.targets.coreml.target import CoreMlTarget
from isomorph.validation.checking import make_reference
from isomorph.validation.lowered import lowered_reference
from isomorph.validation.parity import judge

timm = pytest.importorskip("timm", reason="needs isomorph[test]")

awake = runpy.run_path(str(Path(__file__).parents[2] / "models" / "small_nets.py"))["awake"]

EVIDENCE = "executed" if sys.platform == "darwin" else "evaluated"

# Family: timm's name, the image's size, and what makes it smaller.
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "resnext": ("resnext26ts", 32, {}),
    "mobilenetv3": ("mobilenetv3_small_050", 32, {}),
    "efficientnet": ("test_efficientnet", 32, {}),
    "convnext": ("test_convnext", 32, {}),
    "regnet": ("regnety_002", 32, {}),
    "densenet": ("densenet121", 32, {"block_config": (2, 2, 2, 2)}),
    "vit": ("deit_tiny_patch16_224", 64, {"img_size": 64, "depth": 2}),
    "beit": (
        "beit_base_patch16_224",
        64,
        {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    ),
    "swin": (
        "swin_tiny_patch4_window7_224",
        56,
        {"img_size": 56, "embed_dim": 48, "depths": (2, 2), "num_heads": (3, 6)},
    ),
    "mobilevit": ("mobilevit_xxs", 32, {}),
    "ghostnet": ("ghostnet_050", 32, {}),
    "poolformer": ("poolformerv2_s12", 32, {}),
}


@pytest.mark.parametrize("family", MODELS)
def test_a_model_of_the_family_passes_in_both_precisions(family: str, tmp_path: Path) -> None:
    """The model is captured, and its truth computed, once."""
    name, size, smaller = MODELS[family]
    model = awake(timm.create_model(name, num_classes=10, **smaller))
    example = ExampleCall((torch.randn(2, 3, size, size),), {}, True)
    captured = capture(model, example, dynamic=[parse_dynamic("x.0=batch:1..4")])
    truth = make_reference(captured, model, [], Silent())
    for precision in ("fp32", "fp16"):
        graph = lower_precision(captured.graph, precision)
        halved = precision != "fp32"
        reference = lowered_reference(truth, graph, Silent()) if halved else truth
        path = CoreMlTarget().convert(graph, CoreMlOptions(), tmp_path, precision).path
        with CoreMlTarget().open(path, signature=Signature(graph.inputs, graph.outputs)) as session:
            report = judge(graph, reference, session)
        ended = (report.verdict, report.evidence.kind)
        assert ended == ("pass", EVIDENCE), f"{name} in {precision}: {report.reason}"
        floors = ((o.peak_ratio or 0, o.rms_ratio or 0) for o in report.outputs)
        peak, rms = (max(column) for column in zip(*floors, strict=True))
        print(f"{name} {precision}: {peak:.2f} floors off at worst, {rms:.2f} on average")
