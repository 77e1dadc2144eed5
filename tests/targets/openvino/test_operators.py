"""What OpenVINO's frontend gets wrong or lacks, put right or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.targets.base import Signature
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

CUBE = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
STEEP = torch.tensor([-500.0, -30.0, -1.0, 0.0, 2.0, 500.0])
IMAGE = CUBE[None]

PUT_RIGHT = {
    "log of a sigmoid": (F.logsigmoid, STEEP),
    "diagonals": (lambda x: (x.diagonal(0, 1, 2), x.diagonal(1, 0, 2), x.diagonal(-2, 2, 1)), CUBE),
    "diagonal of a matrix": (torch.diagonal, CUBE[0]),
    "variances of everything": (
        lambda x: (x.var(), x.std(), *torch.var_mean(x), *torch.std_mean(x, correction=3)),
        CUBE,
    ),
    "variances of some axes": (
        lambda x: (x.var((0, 1), correction=2), x.std(-1, correction=0, keepdim=True), x.var(1)),
        CUBE,
    ),
    "instance norm": (nn.InstanceNorm2d(3, affine=True), IMAGE),
    "bfloat16 at the border": (nn.Linear(5, 2).bfloat16(), CUBE.bfloat16()),
    "an input that nothing reads": (lambda x, y: y + 1, CUBE, STEEP),
}


class Net(nn.Module):
    def __init__(self, function: Any, count: int) -> None:
        super().__init__()
        self._function = function
        if count == 2:
            self.forward = self._two  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> Any:
        return self._function(x)

    def _two(self, x: Tensor, y: Tensor) -> Any:
        return self._function(x, y)


def values(tensor: Tensor) -> np.ndarray:
    """As a session has them: bfloat16 as float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@pytest.mark.parametrize("case", sorted(PUT_RIGHT))
def test_put_right(case: str, tmp_path: Path) -> None:
    function, *args = PUT_RIGHT[case]
    graph = isomorph.trace(Net(function, len(args)).eval(), args=tuple(args))
    artifact = OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "net")

    with OpenVinoTarget().open(artifact.path) as session:
        found = session.run({s.name: values(a) for s, a in zip(graph.inputs, args, strict=True)})

    expected = function(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for wanted, got in zip(map(values, expected), found.values(), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-2 if "bfloat" in case else 1e-5, atol=1e-6)


REFUSED = {
    "a mean over padded bags": (
        nn.EmbeddingBag(20, 6, mode="mean", padding_idx=3),
        torch.tensor([[3, 1, 2], [4, 3, 5]]),
        "embedding_bag.*padding_idx",
    ),
    "float64": (torch.exp, torch.tensor([700.0], dtype=torch.float64), "output_0 is float64"),
    "a divisor of pooling": (
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        IMAGE,
        "avg_pool2d.*divisor_override",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case: str, tmp_path: Path) -> None:
    function, x, reason = REFUSED[case]
    graph = isomorph.trace(Net(function, 1).eval(), args=(x,))

    with pytest.raises(ConversionError, match=reason):
        OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "net")


def test_a_size_out_of_bounds_is_told_before_the_runtime_sees_it(tmp_path: Path) -> None:
    graph = isomorph.trace(
        nn.Linear(4, 2), args=(torch.ones(4, 4),), dynamic={"input.0": "batch:2..8:2"}
    )
    artifact = OpenVinoTarget().convert(graph, OpenVinoOptions(), tmp_path, "net")
    signature = Signature(graph.inputs, graph.outputs)

    with OpenVinoTarget().open(artifact.path, signature=signature) as session:
        for size in (1, 3, 10):
            with pytest.raises(UsageError, match=f"batch={size}"):
                session.run({"input": np.ones((size, 4), np.float32)})
