"""TensorRT for RTX: engine, network and recipe belong together, and the network is checked."""

from __future__ import annotations

import json
import shutil

import isomorph
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import InputFileError, MissingRequirementError, UsageError
from isomorph.targets.tensorrt import rtx as rtx_module
from isomorph.targets.tensorrt.gpu import Gpu
from isomorph.targets.tensorrt.rtx import TensorRtRtxTarget


@pytest.fixture
def engine(exported, linear):
    return exported(linear, inputs=["x=2x8"], dynamic={"x.0": "batch:1..4"}).path


def test_the_evidence_says_that_the_engine_was_not_run(exported, linear):
    artifact = exported(linear, inputs=["x=2x8"], dynamic={"x.0": "batch:1..4"})
    assert artifact.verdict == "pass"
    evidence = artifact.evidence.to_json()
    assert evidence["kind"] == "evaluated"
    assert evidence["runtime"] == "isomorph evaluator (network)"
    assert evidence["details"]["engine"] == "not run: that takes its GPU"
    assert evidence["details"]["built for"] == "SM80, SM86, SM89, SM120"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_every_precision_passes_and_the_engine_is_there(exported, linear, precision, tmp_path):
    artifact = exported(linear, inputs=["x=2x8"], precision=precision)
    assert artifact.verdict == "pass"
    names = {path.name for path in tmp_path.iterdir()}
    assert {"net.rtx.engine", "net.rtx.onnx", "net.rtx.json"} <= names


def test_the_recipe_tells_how_the_engine_was_built(engine):
    recipe = json.loads(engine.with_name("net.rtx.json").read_text())
    assert recipe["product"] == "tensorrt-rtx"
    assert recipe["version"].startswith(trt.__version__[:3])
    assert recipe["build"]["profile"]["x"] == {"min": [1, 8], "opt": [2, 8], "max": [4, 8]}
    assert recipe["build"]["precision"] == "fp32"


def test_what_was_written_is_validated_again(engine, linear):
    assert isomorph.validate(engine, linear, inputs=["x=2x8"]).verdict == "pass"


def test_another_model_fails(engine, linear):
    other = type(linear)().eval()
    assert isomorph.validate(engine, other, inputs=["x=2x8"]).verdict == "fail"


@pytest.mark.parametrize("name", ["net.rtx.onnx", "net.rtx.engine"])
def test_a_file_of_another_export_is_noticed(engine, name):
    path = engine.with_name(name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(InputFileError, match=f"{name} is not the file that the engine was built"):
        isomorph.load(engine)


@pytest.mark.parametrize("name", ["net.rtx.onnx", "net.rtx.json"])
def test_an_engine_without_what_lies_beside_it_cannot_be_checked(engine, name):
    engine.with_name(name).unlink()
    with pytest.raises(InputFileError, match="not beside it"):
        isomorph.load(engine)


@pytest.mark.parametrize(
    "text",
    ["", "[" * 200_000, "{}", "[]", '{"schema": 1}', '{"schema": 9, "product": "x"}', "\x00"],
)
def test_a_damaged_recipe_is_refused(engine, text):
    engine.with_name("net.rtx.json").write_text(text)
    with pytest.raises(InputFileError):
        isomorph.load(engine)


def test_a_recipe_does_not_lead_out_of_its_folder(engine):
    path = engine.with_name("net.rtx.json")
    recipe = json.loads(path.read_text())
    path.write_text(json.dumps({**recipe, "network": "../elsewhere.onnx"}))
    with pytest.raises(InputFileError, match="damaged"):
        isomorph.load(engine)


def test_a_renamed_engine_is_told_its_old_name(engine):
    other = engine.with_name("other.rtx.engine")
    shutil.move(engine, other)
    shutil.copy(engine.with_name("net.rtx.json"), engine.with_name("other.rtx.json"))
    with pytest.raises(InputFileError, match=r"built as net\.rtx\.engine"):
        TensorRtRtxTarget().open(other)


def with_hash_put_right(engine):
    import hashlib

    path = engine.with_name("net.rtx.json")
    recipe = json.loads(path.read_text())
    recipe["files"][engine.name] = hashlib.sha256(engine.read_bytes()).hexdigest()
    path.write_text(json.dumps(recipe))


def test_what_is_no_engine_is_refused_whatever_the_recipe_says(engine):
    engine.write_bytes(b"garbage")
    with_hash_put_right(engine)
    with pytest.raises(InputFileError, match="is no engine of TensorRT for RTX"):
        isomorph.load(engine)


def test_validate_builds_the_engine_again_and_notes_another(engine, linear):
    assert isomorph.validate(engine, linear, inputs=["x=2x8"]).notes == ()
    engine.write_bytes(engine.read_bytes()[:-1] + b"?")
    with_hash_put_right(engine)
    notes = isomorph.validate(engine, linear, inputs=["x=2x8"]).notes
    assert any("is not what TensorRT for RTX" in note for note in notes)


@pytest.mark.parametrize("names", [5, [80, 86], None])
def test_a_recipe_of_wrong_types_is_damaged(engine, names):
    path = engine.with_name("net.rtx.json")
    recipe = json.loads(path.read_text())
    recipe["build"]["compute_capabilities"] = names
    path.write_text(json.dumps(recipe))
    with pytest.raises(InputFileError):
        isomorph.load(engine)


def test_without_a_gpu_cuda_is_missing_and_other_devices_are_unknown(engine):
    with pytest.raises(MissingRequirementError, match="shows none"):
        isomorph.load(engine, "cuda")
    with pytest.raises(UsageError, match="does not know the device"):
        isomorph.load(engine, "npu")


@pytest.mark.parametrize(
    ("capability", "devices"), [((8, 9), ("cuda", "cpu")), ((9, 0), ("cpu",)), (None, ("cpu",))]
)
def test_a_gpu_that_the_product_does_not_run_on_is_none(monkeypatch, capability, devices):
    gpu = None if capability is None else Gpu("a GPU", capability)
    monkeypatch.setattr(rtx_module, "find_gpu", lambda: gpu)
    found = TensorRtRtxTarget().capability()
    assert found.devices == devices
    assert found.evaluates == (devices == ("cpu",))


def test_every_gpu_that_can_be_built_for_can_run_it():
    """The list of GPUs is that of the installed product."""
    known = set(trt.ComputeCapability.__members__) - {"NONE", "CURRENT"}
    assert {f"SM{major}{minor}" for major, minor in rtx_module._RUNS_ON} == known


def test_a_wrong_epsilon_in_the_network_fails(exported, tmp_path):
    """What the evaluator is for: a network that is not the model."""
    import onnx

    norm = torch.nn.LayerNorm(8)
    artifact = exported(norm, inputs=["input=2x8"])
    model = onnx.load(str(tmp_path / "net.rtx.onnx"))
    (node,) = [n for n in model.graph.node if n.op_type == "LayerNormalization"]
    next(a for a in node.attribute if a.name == "epsilon").f = 0.1
    onnx.save(model, str(tmp_path / "net.rtx.onnx"))
    recipe = json.loads((tmp_path / "net.rtx.json").read_text())
    import hashlib

    digest = hashlib.sha256((tmp_path / "net.rtx.onnx").read_bytes()).hexdigest()
    recipe["files"]["net.rtx.onnx"] = digest
    (tmp_path / "net.rtx.json").write_text(json.dumps(recipe))
    report = isomorph.validate(artifact.path, norm, inputs=["input=2x8"])
    assert report.verdict == "fail"
