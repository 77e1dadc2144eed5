"""Which inputs are tried: values, ranges, sizes, and the same ones every time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from isomorph.errors import UsageError
from isomorph.exporter.signature import Dim
from isomorph.validation import cases
from isomorph.validation.cost import CostModel
from torch import nn


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.table(ids) * mask[..., None]


@pytest.fixture(scope="module")
def generated(capture_of):
    def make(module, *args, dynamic=(), **options):
        captured = capture_of(module, *args, dynamic=dynamic)
        options = {"synthetic_example": True} | options
        return captured, cases.generate(captured.graph, captured.inputs, **options)

    return make


def by_name(found):
    return {case.name: case for case in found}


def test_a_synthetic_example_is_the_first_random_case(generated):
    captured, found = generated(Images(), torch.randn(2, 3, 8, 8))
    assert found[0].name == "normal-0"
    assert torch.equal(found[0].inputs["x"], captured.inputs["x"])
    assert len(set(by_name(found))) == len(found)


def test_data_come_first_then_the_example(generated):
    sample = {"x": torch.zeros(2, 3, 8, 8)}
    _, found = generated(
        Images(), torch.randn(2, 3, 8, 8), synthetic_example=False, data=[sample, sample]
    )
    assert [case.name for case in found[:4]] == ["data-0", "data-1", "example", "normal-0"]
    assert [case.kind for case in found[:4]] == ["data", "data", "example", "normal"]


def test_values_are_zero_large_and_tiny(generated):
    _, found = generated(Images(), torch.randn(2, 3, 8, 8))
    known = by_name(found)
    assert not known["zeros"].inputs["x"].any()
    assert 50 < known["large-0"].inputs["x"].std() < 200
    assert 5e-4 < known["tiny-0"].inputs["x"].std() < 2e-3
    assert {"large-2", "tiny-2", "normal-1"} <= set(known)


def test_an_image_model_gets_channels_last_input(generated):
    _, found = generated(Images(), torch.randn(2, 3, 8, 8))
    strided = by_name(found)["channels_last"].inputs["x"]
    assert not strided.is_contiguous()
    assert strided.is_contiguous(memory_format=torch.channels_last)


def test_cases_are_the_same_every_time_and_differ_by_seed(generated):
    args = (Images(), torch.randn(2, 3, 8, 8))
    first, again, other = (by_name(generated(*args, seed=s)[1]) for s in (0, 0, 1))
    assert torch.equal(first["large-0"].inputs["x"], again["large-0"].inputs["x"])
    assert not torch.equal(first["large-0"].inputs["x"], other["large-0"].inputs["x"])


def test_indices_stay_in_their_table_and_reach_its_ends(generated):
    ids, mask = torch.randint(0, 7, (2, 50)), torch.ones(2, 50, dtype=torch.bool)
    captured, found = generated(Words(), ids, mask)
    assert captured.graph.inputs[0].range == (0, 6)
    known = by_name(found)
    assert set(known["zeros"].inputs["ids"].flatten().tolist()) == {0}
    assert set(known["large-0"].inputs["ids"].flatten().tolist()) == {6}
    assert set(known["normal-1"].inputs["ids"].flatten().tolist()) == set(range(7))
    assert not known["zeros"].inputs["mask"].any()
    assert known["large-0"].inputs["mask"].all()
    assert 0 < known["normal-1"].inputs["mask"].float().mean() < 1


def test_a_float_range_is_kept(capture_of):
    captured = capture_of(Images(), torch.rand(2, 3, 8, 8))
    spec = replace(captured.graph.inputs[0], range=(0.25, 0.75))
    graph = replace(captured.graph, inputs=(spec,))
    for case in cases.generate(graph, captured.inputs, synthetic_example=False):
        if case.kind != "example":
            assert case.inputs["x"].min() >= 0.25
            assert case.inputs["x"].max() <= 0.75


def test_each_size_is_tried_at_its_ends_and_at_an_odd_one(generated):
    _, found = generated(Images(), torch.randn(2, 3, 8, 8), dynamic=["x.0=batch:1..9"])
    sizes = {c.name: c.inputs["x"].shape[0] for c in found if c.kind == "sizes"}
    assert sizes == {"batch=1": 1, "batch=5": 5, "batch=9": 9}


def test_several_sizes_are_also_tried_at_once(generated):
    dynamic = ["x.0=batch:1..4", "x.2=height:5..11"]
    _, found = generated(Images(), torch.randn(2, 3, 8, 8), dynamic=dynamic)
    known = by_name(found)
    assert known["all-min"].inputs["x"].shape == (1, 3, 5, 8)
    assert known["all-max"].inputs["x"].shape == (4, 3, 11, 8)
    assert known["batch=1"].inputs["x"].shape == (1, 3, 8, 8)


def test_sizes_keep_their_step(generated):
    dynamic = ["x.2=height:8..64:8"]
    _, found = generated(Images(), torch.randn(2, 3, 16, 8), dynamic=dynamic)
    heights = [c.inputs["x"].shape[2] for c in found if c.kind == "sizes"]
    assert heights == [8, 40, 64]


def test_a_size_without_end_is_tried_beyond_the_example_and_says_so(generated):
    _, found = generated(Images(), torch.randn(2, 3, 8, 8), dynamic=["x.0=batch"])
    (largest,) = [c for c in found if "largest" in c.description]
    assert largest.inputs["x"].shape[0] > 2
    assert "the range has no end" in largest.description


def test_a_size_that_memory_cannot_hold_is_lowered_and_says_so(generated):
    dynamic = ["x.0=batch:1..100000000"]
    _, found = generated(Images(), torch.randn(2, 3, 8, 8), dynamic=dynamic)
    (largest,) = [c for c in found if "largest" in c.description]
    assert 2 < largest.inputs["x"].shape[0] < 10**7
    assert "the range goes to 100000000" in largest.description


@pytest.mark.parametrize(
    "sample",
    [
        {},
        {"x": torch.zeros(2, 3, 8)},
        {"x": torch.zeros(2, 3, 8, 8).double()},
        {"x": torch.zeros(5, 3, 8, 8)},
    ],
)
def test_a_sample_that_does_not_fit_is_refused(generated, sample):
    with pytest.raises(UsageError, match="data sample 0"):
        generated(Images(), torch.randn(2, 3, 8, 8), data=[sample])


def test_cost_follows_the_sizes(capture_of):
    graph = capture_of(Images(), torch.randn(2, 3, 8, 8), dynamic=["x.0=batch:1..9"]).graph
    assert graph.dims == {"batch": Dim("batch", 1, 9)}
    model = CostModel(graph)
    assert model.at({"batch": 8}).operations == pytest.approx(4 * model.at({"batch": 2}).operations)
    multiply_adds = 2 * 4 * 36 * 27
    assert 1 <= model.at({"batch": 2}).operations / multiply_adds < 1.2
    input_and_output = 4 * (2 * 3 * 64 + 2 * 4 * 36)
    assert model.at({"batch": 2}).peak_bytes == input_and_output
