"""A real failing report, a passing one and an unverified one, made once."""

from __future__ import annotations

from dataclasses import replace

import isomorph
import onnx
import pytest
import torch
from isomorph.targets.base import Evidence
from isomorph.validation.checking import validate
from isomorph.validation.report import Report
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)
        self.act = nn.GELU()

    def forward(self, x):
        return {"scores<b>": torch.tanh(self.act(self.fc(x))), "label": self.fc(x).argmax(-1)}


@pytest.fixture(scope="session")
def reports(tmp_path_factory) -> list[Report]:
    torch.manual_seed(3)
    net = Scaled().eval()
    path = tmp_path_factory.mktemp("reports") / "net.onnx"
    result = isomorph.export(
        net, "onnx", args=(torch.randn(2, 6),), dynamic={"x.0": "batch:1..8"}, output=path
    )
    good = result.artifacts[0].timed()[0]
    model = onnx.load(path)
    next(n for n in model.graph.node if n.op_type == "Tanh").op_type = "Sin"
    onnx.save(model, path)
    bad = validate(path, net, args=(torch.randn(2, 6),), dynamic={"x.0": "batch:1..8"})
    evidence = Evidence("built", "coremltools", "9.0", "cpu")
    unknown = Report(
        "unverified", "<script>alert(1)</script>", evidence, model="odd\x07 name", format="coreml"
    )
    assert (good.verdict, bad.verdict) == ("pass", "fail")
    return [replace(bad, seconds={"convert": 1.25, "run the artifact": 0.5}), good, unknown]


@pytest.fixture(scope="session")
def document(reports):
    from isomorph.validation.report.document import document_of

    return document_of(reports)
