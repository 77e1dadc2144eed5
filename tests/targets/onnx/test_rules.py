"""Operators that torch's exporter has no translation for, written in operators that it has."""

from __future__ import annotations

from collections.abc import Callable

import isomorph
import pytest
import torch


def spd(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + 4 * torch.eye(x.shape[-1])


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "lgamma": lambda x: torch.lgamma(x.abs() + 0.5),
    "digamma": lambda x: torch.digamma(x.abs() + 1),
    "erfinv": lambda x: torch.erfinv(torch.tanh(x)),
    "i0": torch.special.i0,
    "hypot": lambda x: torch.hypot(x, x + 1),
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "inv": lambda x: torch.linalg.inv(spd(x)),
    "solve": lambda x: torch.linalg.solve(spd(x), x),
    "cummax": lambda x: torch.cummax(x, -1).values,
    "cumprod": lambda x: torch.cumprod(x, -1),
    "median": lambda x: torch.median(x, -1).values,
    "kthvalue": lambda x: torch.kthvalue(x, 2, -1).values,
    "amin of all": torch.amin,
    "cdist": lambda x: torch.cdist(x, x + 1),
}


class Applied(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS[self.name](x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_written_and_right(name, tmp_path):
    batched = {"x.0": "batch:1..4"} if name != "kthvalue" else None
    result = isomorph.export(
        Applied(name).eval(),
        "onnx",
        inputs=["x=3x4x4"],
        dynamic=batched,
        output=tmp_path / "a.onnx",
    )
    assert result.verdict == "pass", result.artifacts[0].report.reason
