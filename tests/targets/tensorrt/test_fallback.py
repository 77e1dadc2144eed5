"""`tensorrt` on a machine that cannot build it: the checked network, and the exact remedy."""

from __future__ import annotations

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError, UsageError
from isomorph.targets.tensorrt import target as target_module
from isomorph.targets.tensorrt.gpu import Gpu
from isomorph.targets.tensorrt.target import TensorRtTarget


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(target_module, "find_gpu", lambda: None)


def test_the_network_is_written_and_checked_and_the_error_says_where(linear, tmp_path):
    result = isomorph.export(linear, "tensorrt", inputs=["x=2x8"], output=tmp_path / "net.engine")
    onnx, engine = result.artifacts
    assert (onnx.format, onnx.verdict, onnx.path) == ("onnx", "pass", tmp_path / "net.onnx")
    assert (engine.format, engine.path) == ("tensorrt", None)
    assert isinstance(engine.error, MissingRequirementError)
    assert "no NVIDIA GPU" in engine.error.message
    assert f"written and checked: {tmp_path / 'net.onnx'}" in engine.error.message
    assert 'pip install "isomorph[tensorrt]"' in engine.error.hint
    assert "--defer" in engine.error.hint
    with pytest.raises(MissingRequirementError):
        result.raise_for_verdict()


def test_the_command_ends_with_6(invoke, tmp_path):
    import json

    run = invoke(
        *("export", "examples/mlp/model.pt", "--model", "examples/mlp/train.py:MLP"),
        *("-i", "1x64", "-f", "tensorrt", "-o", f"{tmp_path}/", "--json"),
    )
    assert run.code == 6
    formats = {entry["format"]: entry for entry in json.loads(run.stdout)["artifacts"]}
    assert formats["onnx"]["verdict"] == "pass"
    assert formats["tensorrt"]["error"]["code"] == 6


def test_it_is_written_in_what_tensorrt_takes(tmp_path):
    import onnx

    class Determinant(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.det(x)

    isomorph.export(
        Determinant().eval(), "tensorrt", inputs=["x=2x3x3"], output=tmp_path / "net.engine"
    )
    written = onnx.load(str(tmp_path / "net.onnx"))
    assert "Det" not in {node.op_type for node in written.graph.node}


@pytest.mark.parametrize(
    ("given", "raised", "told"),
    [
        ({"dynamic": {"x.0": "batch"}}, UsageError, "upper bound"),
        ({"options": {"opt": "batch:3"}}, UsageError, "opt names the dim batch"),
        ({"inputs": ["x=2x8:float64"]}, ConversionError, "float64"),
    ],
)
def test_what_no_machine_could_build_is_told_instead_of_the_missing_gpu(
    linear, tmp_path, given, raised, told
):
    module = torch.nn.Identity() if "inputs" in given else linear
    inputs = ["input=2x8:float64"] if "inputs" in given else ["x=2x8"]
    result = isomorph.export(
        module.eval(),
        "tensorrt",
        **{"inputs": inputs, "output": tmp_path / "net.engine"}
        | {key: value for key, value in given.items() if key != "inputs"},
    )
    error = result.artifacts[-1].error
    assert isinstance(error, raised)
    assert told in error.message


def test_with_onnx_asked_for_there_is_no_second_one(linear, tmp_path):
    result = isomorph.export(
        linear, ["onnx", "tensorrt"], inputs=["x=2x8"], output=f"{tmp_path}/", validate=False
    )
    assert [artifact.format for artifact in result.artifacts] == ["onnx", "tensorrt"]


@pytest.mark.parametrize(
    ("gpu", "package", "remedy"),
    [
        (None, True, "on the machine whose NVIDIA GPU"),
        (None, False, "on the machine whose NVIDIA GPU"),
        (Gpu("an RTX", (8, 9)), False, "pip install"),
        (Gpu("an RTX", (8, 9)), True, None),
    ],
)
def test_the_remedy_is_what_lacks(monkeypatch, gpu, package, remedy):
    monkeypatch.setattr(target_module, "find_gpu", lambda: gpu)
    monkeypatch.setattr(target_module, "importable", lambda module: package)
    found = TensorRtTarget().capability()
    assert found.builds == (remedy is None)
    assert found.devices == (() if remedy else ("cuda",))
    assert remedy is None or remedy in found.remedy


def test_of_several_formats_those_that_are_built_on_the_device_are_deferred(linear, tmp_path):
    result = isomorph.export(
        linear,
        ["tensorrt", "tensorrt-rtx"],
        inputs=["x=2x8"],
        output=f"{tmp_path}/",
        defer=True,
    )
    names = [artifact.path.name for artifact in result.artifacts]
    assert names == ["linear.trt-deferred", "linear.rtx.engine"]


def test_what_is_made_here_is_not_deferred(linear, tmp_path):
    with pytest.raises(UsageError, match="cannot be deferred"):
        isomorph.export(linear, "onnx", inputs=["x=2x8"], output=tmp_path / "a.onnx", defer=True)
