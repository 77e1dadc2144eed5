"""Operators that ONNX has and TensorRT's parser refuses, or takes wrongly, in another form."""

from __future__ import annotations

from collections.abc import Callable

import isomorph
import pytest
import torch
from torch.nn import functional

F = functional
INDEX = torch.tensor([[0, 1, 2, 0]]).expand(3, 4)

FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "det": (torch.linalg.det, "3x4x4"),
    "rfft": (lambda x: torch.fft.rfft(x).abs(), "3x16"),
    "pooling with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], "1x2x8x8"),
    "unpooling": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), "1x2x8x8"),
    "dilated pooling": (lambda x: F.max_pool2d(x, 3, dilation=2), "1x2x8x8"),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2])), "3x4"),
    "log_softmax": (lambda x: F.log_softmax(x, -1), "3x4"),
    "hstack": (lambda x: torch.hstack([x, x]), "3x4"),
    "antialiased": (
        lambda x: F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True),
        "1x2x8x8",
    ),
    "scatter_add": (lambda x: torch.zeros(3, 4).scatter_add(0, INDEX, x), "3x4"),
    "index_add": (lambda x: torch.ones(3, 4).index_add(0, torch.tensor([0, 1, 0]), x), "3x4"),
    "scatter mean": (lambda x: torch.zeros(3, 4).scatter_reduce(0, INDEX, x, "mean"), "3x4"),
    "mask": (lambda x: x.index_put((x > 0,), torch.tensor(0.0)), "3x4"),
    "negative index_put": (
        lambda x: x.index_put((torch.tensor([0, -2]),), torch.tensor(1.0)),
        "3x4",
    ),
    "embedding bag": (lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x), "3x4"),
}


class Applied(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS[self.name][0](x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_built_and_right(name, exported):
    artifact = exported(Applied(name), inputs=[f"x={FUNCTIONS[name][1]}"], options={"sm": "86"})
    assert artifact.verdict == "pass", artifact.report.reason


class LastColumn(torch.nn.Module):
    def forward(self, x):
        x = x.clone()
        x[:, -1] = 0
        return x


def test_writing_into_the_last_column_counts_from_the_front(exported):
    artifact = exported(LastColumn(), inputs=["x=3x4"], dynamic={"x.0": "batch:2..4"})
    assert artifact.verdict == "pass", artifact.report.reason


class Placed(torch.nn.Module):
    def forward(self, x, v):
        return x.scatter_add(1, torch.tensor([[0, 1, 2, 1]]), v)


def test_an_infinity_stays_in_its_place(exported):
    """As a product with ones and zeros the sum would be NaN elsewhere."""
    artifact = exported(Placed(), inputs=["x=1x5", "v=1x4"])
    x, v = torch.randn(1, 5), torch.tensor([[1.0, float("nan"), 2.0, -float("inf")]])
    with isomorph.load(artifact.path) as session:
        (found,) = session.run({"x": x.numpy(), "v": v.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), Placed()(x, v), equal_nan=True)


class Product(torch.nn.Module):
    def forward(self, x):
        return x * 2_000_000_000


def test_integers_that_overflow_are_unverified(exported):
    artifact = exported(Product(), inputs=["x=8:int32:-20..20"])
    assert artifact.verdict == "unverified"
    assert "overflows" in artifact.report.reason
