"""Half precision in ONNX files: what is written, how it is run, and bfloat16 at the border."""

from __future__ import annotations

import isomorph
import numpy as np
import onnx
import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.targets.bfloat16 import from_bits, to_bits
from isomorph.targets.onnx.halves import describe, half_operators
from torch import nn


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    path = tmp_path_factory.mktemp("half") / "net.onnx"
    return isomorph.export(module, inputs=["2x8"], precision="fp16", output=path)


def test_an_fp16_file_holds_half_weights_between_float32_borders(half):
    model = onnx.load(half.artifacts[0].path)
    kinds = {t.name: t.data_type for t in model.graph.initializer}
    assert kinds["0.weight"] == onnx.TensorProto.FLOAT16
    assert kinds["1.weight"] == onnx.TensorProto.FLOAT
    border = (*model.graph.input, *model.graph.output)
    assert {v.type.tensor_type.elem_type for v in border} == {onnx.TensorProto.FLOAT}
    assert half.verdict == "pass"


def test_the_evidence_says_that_the_cpu_computes_half_operators_in_float32(half):
    details = half.artifacts[0].evidence.details
    assert details["half operators"] == "all 3 computed in float32"


def test_a_float32_file_has_nothing_to_say_about_halves(tmp_path):
    done = isomorph.export(nn.Linear(4, 4), inputs=["2x4"], output=tmp_path / "net.onnx")
    assert "half operators" not in done.artifacts[0].evidence.details


def test_operators_that_stay_in_half_are_named(half):
    written = half_operators(half.artifacts[0].path)
    assert written == {"Gemm": 2, "Gelu": 1}
    told = describe(written, {"Gelu": 1})
    assert told == "3 written, 1 computed in half (Gelu), the others in float32"


def test_bf16_that_this_runtime_cannot_run_is_told_with_what_to_do(tmp_path):
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with pytest.raises(ConversionError, match="bfloat16") as caught:
        isomorph.export(module, inputs=["2x8"], precision="bf16", output=tmp_path / "n.onnx")
    assert "--precision fp16" in (caught.value.hint or "")


class Narrow(nn.Module):
    def forward(self, x):
        return (x.float() * 3).to(torch.bfloat16)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    path = tmp_path_factory.mktemp("narrow") / "net.onnx"
    return isomorph.export(Narrow(), inputs=["x=2x8:bfloat16"], output=path)


def test_a_bfloat16_model_is_run_and_judged(narrow):
    assert narrow.verdict == "pass"


def test_bfloat16_goes_in_and_out_as_float32(narrow):
    with isomorph.load(narrow.artifacts[0].path) as session:
        assert [s.dtype for s in (*session.inputs, *session.outputs)] == ["bfloat16"] * 2
        out = session.run({"x": np.full((2, 8), 1.5, np.float32)})["output_0"]
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out, np.full((2, 8), 4.5, np.float32))
        with pytest.raises(UsageError, match="float64 where the model takes bfloat16, given as"):
            session.run({"x": np.zeros((2, 8))})


def test_bits_round_as_torch_does():
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e3
    values = torch.cat([values, torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 3.4e38])])
    rounded = from_bits(to_bits(values.numpy()))
    np.testing.assert_array_equal(rounded, values.to(torch.bfloat16).float().numpy())
    assert np.isnan(from_bits(to_bits(np.array([np.nan], np.float32)))).all()


def test_bf16_is_written_in_an_opset_whose_convolutions_take_it(tmp_path):
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    path = tmp_path / "net.onnx"
    options = {"inputs": ["1x3x8x8"], "precision": "bf16", "output": path, "validate": False}
    isomorph.export(module, **options)
    assert onnx.load(path).opset_import[0].version == 22
