"""Artifacts that other tools made, under names of their own and without a manifest."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from isomorph.tests.targets.localizing import NETS, net_of
from torch import Tensor, nn


def convolution(folder: Path) -> tuple[nn.Module, list[str]]:
    """The net, and the command's arguments but for the artifact."""
    net = net_of("ConvNet")
    torch.save(net.state_dict(), folder / "net.pt")
    words = ["--against", str(folder / "net.pt"), "--model", f"{NETS}:ConvNet", "-q"]
    return net, [*words, "-i", "2x3x8x8"]


def plain_onnx(net: nn.Module, inputs: tuple[Tensor, ...], path: Path, **names: list[str]) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, inputs, str(path), dynamo=False, opset_version=17, **names)
    return path


def test_default_names_are_matched_by_position_and_that_is_told(invoke, tmp_path) -> None:
    net, words = convolution(tmp_path)
    path = plain_onnx(net, (torch.randn(2, 3, 8, 8),), tmp_path / "plain.onnx")
    done = invoke("validate", path, *words)
    assert done.code == 0, done.stderr
    assert "matched by their position" in " ".join(done.stdout.split())
    assert "input.1 is x" in done.stdout


def test_a_fault_under_other_names_is_a_fault_and_names_the_match(invoke, tmp_path) -> None:
    net, words = convolution(tmp_path)
    net.fc.weight.data[0, 0] += 0.1
    path = plain_onnx(net, (torch.randn(2, 3, 8, 8),), tmp_path / "plain.onnx")
    done = invoke("localize", path, *words)
    assert done.code == 3
    assert "matched by their position" in " ".join(done.stderr.split())
    assert "operator was not looked for" in " ".join(done.stdout.split())


def test_names_that_cannot_be_matched_are_listed(invoke, tmp_path) -> None:
    _, words = convolution(tmp_path)
    other = nn.Linear(4, 2)
    names = {"input_names": ["ids"], "output_names": ["logits"]}
    path = plain_onnx(other, (torch.randn(1, 4),), tmp_path / "other.onnx", **names)
    done = invoke("validate", path, *words)
    assert done.code == 5
    told = " ".join(done.stderr.split())
    assert "expected x float32[2x3x8x8]; found ids float32[1x4]" in told


class Two(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a - 2 * b


class Swapped(nn.Module):
    def forward(self, b: Tensor, a: Tensor) -> Tensor:
        return a - 2 * b


@pytest.mark.parametrize(
    ("module", "names", "code"),
    [
        (Two, ["first", "second"], 0),
        (Swapped, ["first", "second"], 3),  # the order differs, and names do not tell
        (Swapped, ["b", "a"], 0),  # the order differs, and names tell
        (Two, ["a", "second"], 0),
    ],
)
def test_inputs_in_another_order_never_pass_by_mistake(module, names, code, tmp_path) -> None:
    import isomorph

    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    path = plain_onnx(
        module(), inputs, tmp_path / "two.onnx", input_names=names, output_names=["output_0"]
    )
    report = isomorph.validate(path, Two().eval(), args=inputs)
    assert report.verdict == {0: "pass", 3: "fail"}[code]
    if code == 3:
        assert "first is a, second is b" in report.reason


def test_openvinos_own_conversion_works(invoke, tmp_path) -> None:
    openvino = pytest.importorskip("openvino")
    net, words = convolution(tmp_path)
    model = openvino.convert_model(net, example_input=torch.randn(2, 3, 8, 8))
    openvino.save_model(model, tmp_path / "plain.xml", compress_to_fp16=False)
    done = invoke("validate", tmp_path / "plain.xml", *words)
    assert done.code == 0, done.stderr


def test_a_trace_of_torch_jit_names_nothing_and_is_refused(invoke, tmp_path) -> None:
    net, words = convolution(tmp_path)
    torch.jit.trace(net, torch.randn(2, 3, 8, 8)).save(str(tmp_path / "plain.ts"))
    done = invoke("validate", tmp_path / "plain.ts", *words)
    assert done.code == 5
    assert "does not name its inputs and outputs" in done.stderr
