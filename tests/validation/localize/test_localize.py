"""Faults put into the bytes of ONNX files are found: operator, node, module, line and stage."""

from __future__ import annotations

import json
import subprocess
import sys

import isomorph
import numpy as np
import onnx
import pytest
import torch
from isomorph.validation.checking import validate
from onnx import numpy_helper
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.norm = nn.LayerNorm(8)
        self.act = nn.GELU(approximate="tanh")
        self.fc = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        y = torch.relu(self.bn(self.conv(x)))
        y = y.flatten(2).transpose(1, 2)
        y = self.norm(y)
        y = self.act(self.fc(y))
        y = y + self.attention(y, y, y, need_weights=False)[0]
        return y.mean(1), torch.sub(y.amax(1), 2.0 * y.amin(1))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    net = Net().eval()
    for tensor in (net.bn.running_mean, net.bn.running_var):
        tensor.data.uniform_(0.5, 1.5)
    path = tmp_path_factory.mktemp("localize") / "net.onnx"
    result = isomorph.export(net, "onnx", args=(torch.randn(2, 3, 8, 8),), output=path)
    assert result.verdict == "pass"
    return net, path


def node(model, kind, index=0):
    return [n for n in model.graph.node if n.op_type == kind][index]


def attribute(found, name):
    return next(a for a in found.attribute if a.name == name)


def rewrite(model, name, change):
    tensor = next(t for t in model.graph.initializer if t.name.startswith(name))
    values = numpy_helper.to_array(tensor).copy()
    change(values)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def gelu_form(model):
    attribute(node(model, "Gelu"), "approximate").s = b"none"
    return "gelu"


def layer_norm_epsilon(model):
    attribute(node(model, "LayerNormalization"), "epsilon").f *= 3
    return "layer_norm"


def softmax_axis(model):
    attribute(node(model, "Softmax"), "axis").i = 2
    return "scaled_dot_product_attention"


def one_weight(model):
    rewrite(model, "fc.weight", lambda w: w.reshape(-1).__setitem__(5, w.reshape(-1)[5] * 1.02))
    return "linear"


def bias_of_conv(model):
    rewrite(model, "conv.bias", lambda b: b.__setitem__(2, b[2] + 0.01))
    return "conv2d"


def swapped_inputs(model):
    found = node(model, "Sub")
    found.input[0], found.input[1] = found.input[1], found.input[0]
    return "sub"


FAULTS = {
    f.__name__: f
    for f in (
        gelu_form,
        layer_norm_epsilon,
        softmax_axis,
        one_weight,
        bias_of_conv,
        swapped_inputs,
    )
}


def edited(path, folder, fault):
    model = onnx.load(path)
    operator = fault(model)
    target = folder / path.name
    onnx.save(model, target)
    (folder / f"{path.name}.manifest.json").write_bytes(
        path.with_name(f"{path.name}.manifest.json").read_bytes()
    )
    return target, operator


@pytest.mark.parametrize("name", FAULTS)
def test_the_edited_operator_is_named(exported, tmp_path, name):
    net, path = exported
    file, operator = edited(path, tmp_path, FAULTS[name])
    report = validate(file, net, args=(torch.randn(2, 3, 8, 8),))
    assert report.verdict == "fail"
    found = report.localization
    assert found.stage == "file"
    assert any(operator in target for target in found.culprit.targets), found.summary
    assert found.culprit.location.startswith("test_localize.py:") or "/test_localize.py:" in (
        "/" + found.culprit.location
    )
    assert found.culprit.before < 6 < found.culprit.after
    assert found.culprit.alone > 6
    passed = {stage.name: stage.passed for stage in found.stages}
    assert passed == {
        "eager": True,
        "exported program": True,
        "legalised": True,
        "converted": True,
        "optimised": True,
        "file": False,
        "runtime": False,
    }
    json.dumps(report.to_json(), allow_nan=False)


def test_the_node_inside_an_operator_is_named(exported, tmp_path):
    net, path = exported
    file, _ = edited(path, tmp_path, softmax_axis)
    found = validate(file, net, args=(torch.randn(2, 3, 8, 8),)).localization
    assert found.culprit.artifact_operator == "Softmax"
    assert found.culprit.module == "attention"
    assert found.culprit.source.startswith("y = y + self.attention")


def test_the_curve_leaves_the_floor_where_the_fault_is(exported, tmp_path):
    net, path = exported
    file, _ = edited(path, tmp_path, gelu_form)
    found = validate(file, net, args=(torch.randn(2, 3, 8, 8),)).localization
    ratios = {point.node: point.ratio for point in found.curve}
    assert ratios["linear"] < 6 < ratios["gelu"]


def test_an_error_that_heals_downstream_is_found_by_running_operators_alone(tmp_path):
    class Healing(nn.Module):
        def forward(self, x):
            y = torch.sigmoid(x) * 1.5
            return torch.round(y) + torch.tanh(x), y.clamp(0, 0.1)

    net = Healing().eval()
    path = tmp_path / "net.onnx"
    isomorph.export(net, "onnx", args=(torch.randn(2, 9),), output=path)
    model = onnx.load(path)
    node(model, "Tanh").op_type = "Sin"
    onnx.save(model, path)
    found = validate(path, net, args=(torch.randn(2, 9),)).localization
    assert found.culprit.targets == ("aten.tanh.default",)


def test_a_reproduction_shows_both_answers(exported, tmp_path):
    net, path = exported
    file, _ = edited(path, tmp_path, layer_norm_epsilon)
    script = tmp_path / "repro.py"
    report = validate(file, net, args=(torch.randn(2, 3, 8, 8),), reproduction=script)
    assert report.localization.reproduction == "repro.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "aten.layer_norm.default" in done.stdout
    with np.load(script.with_suffix(".npz")) as arrays:
        assert "artifact" in arrays
    torch_line, artifact_line = done.stdout.splitlines()[1:3]
    assert float(torch_line.split()[4].rstrip(",")) * 10 < float(
        artifact_line.split()[3].rstrip(",")
    )


def test_an_export_that_fails_keeps_report_and_reproduction_with_the_rejected_file(
    tmp_path, monkeypatch
):
    from isomorph.targets.onnx.target import OnnxTarget

    convert = OnnxTarget.convert

    def wrong(self, *args, **kwargs):
        artifact = convert(self, *args, **kwargs)
        model = onnx.load(artifact.path)
        for found in model.graph.node:
            if found.op_type == "Tanh":
                found.op_type = "Sin"
        onnx.save(model, artifact.path)
        from dataclasses import replace

        return replace(artifact, hashes={})

    monkeypatch.setattr(OnnxTarget, "convert", wrong)

    class Small(nn.Module):
        def forward(self, x):
            return torch.tanh(x) + 1

    result = isomorph.export(
        Small().eval(), "onnx", args=(torch.randn(2, 9),), output=tmp_path / "net.onnx"
    )
    assert result.verdict == "fail"
    found = result.artifacts[0].report.localization
    assert found.stage == "converted"
    assert found.culprit.artifact_operator == "Sin"
    rejected = tmp_path / "net.onnx.rejected"
    names = {file.name for file in rejected.iterdir()}
    assert {"net.onnx.repro.py", "net.onnx.repro.npz", "net.onnx.report.json"} <= names
    with pytest.raises(isomorph.errors.ParityError, match=r"first wrong: tanh\.default"):
        result.raise_for_verdict()


def test_the_command_prints_operator_and_line_and_writes_the_reproduction(
    exported, tmp_path, invoke
):
    net, path = exported
    file, _ = edited(path, tmp_path, gelu_form)
    checkpoint = tmp_path / "net.pt"
    torch.save(net.state_dict(), checkpoint)
    done = invoke(
        "localize",
        file,
        "--against",
        checkpoint,
        "--model",
        f"{__file__}:Net",
        "-i",
        "2x3x8x8",
        "-q",
    )
    assert done.code == 3
    assert "gelu.default" in done.stdout
    assert "self.act(self.fc(y))" in done.stdout
    assert file.with_name("net.onnx.repro.py").is_file()
