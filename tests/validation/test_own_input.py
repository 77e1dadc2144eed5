"""The user's own input weighs more than random values, and odd layouts and values weigh nothing."""

from __future__ import annotations

import isomorph
import pytest
import torch
from torch import nn


def export(module, args, tmp_path, format="torchscript", **more):
    torch.manual_seed(0)
    (artifact,) = isomorph.export(
        module, format, args=args, output=f"{tmp_path}/", **more
    ).artifacts
    return artifact


def test_an_example_that_overflows_half_earns_no_pass(tmp_path):
    big = torch.randn(4, 16) * 200_000
    artifact = export(nn.Linear(16, 16), (big,), tmp_path, precision="fp16")
    assert artifact.verdict == "unverified"
    assert "overflows float16" in artifact.report.reason
    assert "example" in artifact.report.reason


def test_a_sample_that_overflows_half_earns_no_pass(tmp_path):
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    data = [{"input": torch.rand(4, 16) * 2e5}]
    artifact = export(net, (torch.randn(4, 16),), tmp_path, precision="fp16", data=data)
    assert artifact.verdict == "unverified"
    assert "data-0" in artifact.report.reason


def test_a_sample_that_overflows_float32_earns_no_pass(tmp_path):
    class Squares(nn.Module):
        def forward(self, x):
            return x * x

    data = [{"x": torch.full((2, 3), 1e30)}]
    assert export(Squares(), (torch.randn(2, 3),), tmp_path, data=data).verdict == "unverified"


def test_a_sample_with_an_empty_result_does_not_stand_in_the_way(tmp_path):
    class Positive(nn.Module):
        def forward(self, x):
            return x[x > 0] * 2

    data = [{"x": -torch.rand(4, 3)}]
    artifact = export(Positive(), (torch.randn(4, 3),), tmp_path, data=data, format="onnx")
    assert artifact.verdict == "pass"


class Gated(nn.Module):
    """A product of two activations: of tiny inputs it is below float16's normal numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, x):
        return self.c(nn.functional.silu(self.a(x)) * self.b(x))


def test_products_of_tiny_values_do_not_fail_half(tmp_path):
    artifact = export(Gated(), (torch.randn(4, 64),), tmp_path, precision="fp16")
    assert artifact.verdict == "pass", artifact.report.reason


def test_eager_kernels_that_lose_digits_on_channels_last_fail_no_capture(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Sigmoid(), nn.GroupNorm(4, 16), nn.Conv2d(16, 4, 1)
    )
    artifact = export(net, (torch.randn(2, 3, 48, 48),), tmp_path)
    assert artifact.verdict == "pass"
    assert any("strided" in note for note in artifact.notes)


def test_a_model_that_takes_layout_for_meaning_still_fails(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            return x * 2 if x.is_contiguous() else x * 2.1

    with pytest.raises(isomorph.errors.ConversionError, match="channels_last"):
        export(Odd(), (torch.randn(2, 3, 4, 4),), tmp_path)


class Bags(nn.Module):
    """Takes offsets that begin with 0, which random integers hardly do."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets)


def test_random_values_that_the_model_rejects_are_left_out_where_an_example_runs(tmp_path):
    args = (torch.randint(0, 20, (10,)), torch.tensor([0, 3, 3, 8]))
    artifact = export(Bags(), args, tmp_path)
    assert artifact.verdict == "pass"
    assert any("left out" in note for note in artifact.notes)


def test_an_output_under_an_empty_key_is_named_by_its_position_in_every_format(tmp_path):
    class Nameless(nn.Module):
        def forward(self, x):
            return {"a": x * 2, "": x.sum()}

    artifact = export(Nameless(), (torch.randn(2, 3),), tmp_path)
    assert artifact.verdict == "pass"
    assert [output.name for output in artifact.report.outputs] == ["a", "output_1"]
