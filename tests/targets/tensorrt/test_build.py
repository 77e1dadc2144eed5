"""The builder with TensorRT for RTX: what it is told, and what it says when it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from isomorph.errors import ConversionError, IsomorphError, MissingRequirementError, UsageError
from isomorph.targets.tensorrt.build import build
from isomorph.targets.tensorrt.failures import plain_reason
from isomorph.targets.tensorrt.making import write_network
from isomorph.targets.tensorrt.options import RtxOptions, Settings
from isomorph.targets.tensorrt.parse import parse
from isomorph.targets.tensorrt.products import RTX


class Boxes(torch.nn.Module):
    def forward(self, boxes, scores):
        import torchvision

        return torchvision.ops.nms(boxes, scores, 0.5)


class Narrow(torch.nn.Module):
    def forward(self, x):
        return x.short().float()


class Double(torch.nn.Module):
    def forward(self, x):
        return x.double() * 2


def line_of(text: str) -> int:
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(source, 1) if text in line)


def test_a_float32_product_for_turing_names_the_layer_the_module_and_the_line(exported, linear):
    with pytest.raises(ConversionError, match="no float32 matrix product for SM75") as caught:
        exported(linear, inputs=["x=2x8"], options={"sm": "75,86"})
    assert "(node_linear, fc, tests/targets/tensorrt/conftest.py:" in caught.value.message
    assert "--precision fp16" in caught.value.hint


def test_half_precision_is_built_for_turing(exported, linear, tmp_path):
    exported(linear, inputs=["x=2x8"], options={"sm": "75"}, precision="fp16", validate=False)
    assert (tmp_path / "net.rtx.engine").stat().st_size > 0


def test_every_gpu_that_the_product_knows_is_built_for(exported, linear, tmp_path):
    """All but Turing, which has no float32 matrix product."""
    exported(linear, inputs=["x=2x8"], options={"sm": "80,86,89,120,121"}, validate=False)
    for_all = (tmp_path / "net.rtx.engine").stat().st_size
    exported(linear, inputs=["x=2x8"], options={"sm": "80"}, validate=False)
    assert for_all > (tmp_path / "net.rtx.engine").stat().st_size


def test_a_gpu_that_the_product_does_not_know_is_a_usage_error(exported, linear):
    with pytest.raises(UsageError, match="does not build for SM90") as caught:
        exported(linear, inputs=["x=2x8"], options={"sm": "90"})
    assert "sm=75,80,86,89,120" in caught.value.hint


def test_what_the_parser_takes_and_the_builder_refuses_is_named(exported, tmp_path):
    with pytest.raises(ConversionError, match="does not build NMS") as caught:
        exported(Boxes(), inputs=["boxes=10x4", "scores=10"])
    assert f"test_build.py:{line_of('torchvision.ops.nms(boxes')}" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_what_the_parser_refuses_is_named(exported):
    with pytest.raises(ConversionError, match="parser refuses Cast") as caught:
        exported(Narrow(), inputs=["x=4x4"])
    assert f"test_build.py:{line_of('x.short().float()')}" in caught.value.message


class Shifted(torch.nn.Module):
    def forward(self, x):
        return x << 3


def test_a_constant_that_the_parser_refuses_is_told_by_who_reads_it(exported):
    with pytest.raises(ConversionError, match="a constant of a dtype") as caught:
        exported(Shifted(), inputs=["x=4:int32"])
    assert f"test_build.py:{line_of('return x << 3')}" in caught.value.message


@pytest.mark.parametrize(
    ("module", "given", "told"),
    [
        (Double(), ["x=2x4"], "the output output_0 is float64"),
        (torch.nn.Identity(), ["input=2x4:int16"], "the input input is int16"),
    ],
)
def test_dtypes_that_tensorrt_lacks_at_the_border_are_refused(exported, module, given, told):
    with pytest.raises(ConversionError, match=told):
        exported(module, inputs=given)


def parsed_linear(linear, tmp_path):
    import isomorph

    graph = isomorph.trace(linear, inputs=["x=2x8"], dynamic={"x.0": "batch:1..4"})
    network = write_network(graph, None, None, tmp_path, "net")
    return parse(RTX, network.onnx.path), network


def test_tf32_is_cleared_unless_it_is_asked_for(linear, tmp_path, monkeypatch):
    """TensorRT has it on by default; fp32 would then be checked against noise it does not keep."""
    asked = {}

    class Seen(Exception):  # noqa: N818 - no error, a way out of the build
        pass

    class Builder:
        def __init__(self, builder):
            self._builder = builder

        def __getattr__(self, name):
            return getattr(self._builder, name)

        def build_serialized_network(self, network, config):
            import tensorrt_rtx as trt

            asked["tf32"] = config.get_flag(trt.BuilderFlag.TF32)
            asked["workspace"] = config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE)
            raise Seen

    from dataclasses import replace

    parsed, network = parsed_linear(linear, tmp_path)
    parsed = replace(parsed, builder=Builder(parsed.builder))
    for options, tf32 in ((RtxOptions(workspace=64), False), (RtxOptions(tf32=True), True)):
        with pytest.raises(Seen):
            build(parsed, network.profile, options.settings)
        assert asked["tf32"] is tf32
        assert (asked["workspace"] == 64 << 20) is not tf32


def test_what_needs_a_gpu_says_so(linear, tmp_path):
    parsed, network = parsed_linear(linear, tmp_path)
    settings = Settings(flags=("REFIT",), compute_capabilities=("SM86",))
    with pytest.raises(MissingRequirementError, match="needs a GPU"):
        build(parsed, network.profile, settings)


def test_a_flag_that_the_product_lacks_is_a_usage_error(linear, tmp_path):
    parsed, network = parsed_linear(linear, tmp_path)
    with pytest.raises(UsageError, match="has no FP16"):
        build(parsed, network.profile, Settings(flags=("FP16",)))


@pytest.mark.parametrize(
    "text",
    [
        "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)",
        "Error Code 2: OutOfMemory (Requested amount of GPU memory (8 bytes) could not be "
        "allocated.)",
    ],
)
def test_too_little_gpu_memory_is_told_with_the_option_that_helps(linear, tmp_path, text):
    from isomorph.targets.tensorrt.failures import build_failure

    parsed, _ = parsed_linear(linear, tmp_path)
    error = build_failure(parsed, [text], Settings(), lambda node: "")
    assert isinstance(error, IsomorphError)
    assert "out of GPU memory" in error.message
    assert "--set workspace=" in error.hint


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (
            "IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error (Network has shape "
            "inputs. In validate at /_src/optimizer/api/network.cpp:4023)",
            "Network has shape inputs.",
        ),
        (
            "[tacticSupply.cpp::getSupportedFormats::48] Error Code 2: Internal Error (Assertion "
            "!layerImpls.empty() failed. nms_0 has no runners In getFormats at /_src/x:48)",
            "nms_0 has no runners",
        ),
        ('creator && "Plugin not found"', "Plugin not found"),
        ("a && b == C::k1: NonZero was not found.", "NonZero was not found."),
    ],
)
def test_the_librarys_words_lose_their_internals(text, plain):
    assert plain_reason(text) == plain


_BUILD = """
import hashlib, sys, torch, isomorph
from pathlib import Path
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 5))
folder = Path(sys.argv[1])
isomorph.export(net.eval(), "tensorrt-rtx", inputs=["input=2x3x8x8"],
                output=folder / "n.rtx.engine", dynamic={"input.0": "batch:1..4"},
                precision=sys.argv[2], validate=False)
for path in sorted(folder.iterdir()):
    print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
"""


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_two_processes_write_the_same_bytes(precision, tmp_path):
    told = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, str(tmp_path / name), precision],
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert "n.rtx.engine " in told[0]
