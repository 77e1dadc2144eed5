"""What may stand at a model's border: through `isomorph.export`, with its verdict or exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.errors import IsomorphError
from torch import Tensor, nn


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


F = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
I = torch.tensor([[1, -2, 3], [0, 7, -9]])  # noqa: E741 - integers

Case = tuple[Callable[..., Any], tuple[Tensor, ...]]
PASS: dict[str, Case] = {
    "an output is an input": (lambda x: (x, x * 2), (F,)),
    "an output is nothing but an input": (lambda x: x, (F,)),
    "an output is a view of an input": (lambda x: (x.t(), x[0], x + 1), (F,)),
    "an output is a constant": (lambda x: (torch.full((2,), 3.0), x + 1), (F,)),
    "one output twice": (lambda x: (lambda y: (y, y))(x * 2), (F,)),
    "one output three times, and an input": (lambda x: (lambda y: [y, x, y, y])(x.exp()), (F,)),
    "an output that others are made of": (lambda x: (lambda y: (y, y + 1))(x.sin()), (F,)),
    "an input is not used": (lambda x, y: x * 2, (F, F)),
    "scalars": (lambda x, y: (x + y, x * 2 - y), (torch.tensor(2.0), torch.tensor(3.0))),
    "a scalar out": (lambda x: x.sum(), (F,)),
    "a scalar in": (lambda x, y: x * y, (F, torch.tensor(0.5))),
    "bool in and out": (lambda x: (~x, x & (x | ~x)), (I > 0,)),
    "bool out": (lambda x: x > 0, (F,)),
    "bool as a mask": (lambda x, y: torch.where(y, x, -x), (F, I > 0)),
    "int64": (lambda x: (x + 1, x.clamp(-3, 3)), (I,)),
    "int32": (lambda x: x * 2, (I.int(),)),
    "int16": (lambda x: x + 1, (I.short(),)),
    "int8": (lambda x: x.clamp(-5, 5), (I.to(torch.int8),)),
    "uint8": (lambda x: x.float() / 255, (I.abs().to(torch.uint8),)),
    "uint8 out": (lambda x: x // 2, (I.abs().to(torch.uint8),)),
    "float16": (lambda x: x * 2, (F.half(),)),
    "integers made of floats": (lambda x: x.argmax(1), (F,)),
    "dictionaries and None": (lambda x: {"a": x + 1, "b": None, "c": [x * 2]}, (F,)),
    "rank 6 that coremltools folds away": (
        lambda x: x.reshape(2, 1, 1, 1, 1, 3).permute(5, 1, 2, 3, 4, 0).reshape(3, 2),
        (F,),
    ),
    "rank 5": (lambda x: x.flip(0) * 2, (torch.randn(2, 1, 2, 1, 3),)),
}

REFUSED: dict[str, tuple[int, str, Case]] = {
    "rank 6": (4, "6 axes", (lambda x: x * 2, (torch.randn(1, 2, 1, 2, 1, 2),))),
    "rank 6 out": (4, "6 axes", (lambda x: x.reshape(1, 2, 1, 1, 1, 3), (F,))),
    "rank 6 within": (
        4, "rank|axes",
        (lambda x: x.reshape(1, 2, 1, 1, 1, 3).sin().cumsum(1).reshape(2, 3) + 1, (F,)),
    ),
    "nothing in": (4, "empty", (lambda x, y: x * 2 + y.sum(), (F, torch.zeros(0, 3)))),
    "nothing out": (4, "empty", (lambda x: (x * 2, x[:0]), (F,))),
    "float64": (4, "float64", (lambda x: x * 2, (F.double(),))),
    "bfloat16": (4, "bfloat16", (lambda x: x * 2, (F.bfloat16(),))),
    "complex": (4, "complex64", (lambda x: torch.view_as_complex(x), (torch.randn(3, 2),))),
}  # fmt: skip


def exported(case: Case, folder: Path) -> Any:
    function, args = case
    module = Calls(function).eval()
    return isomorph.export(module, "coreml", output=folder / "model.mlpackage", args=args)


@pytest.mark.parametrize("name", PASS)
def test_it_is_exported_with_a_pass(name: str, tmp_path: Path) -> None:
    result = exported(PASS[name], tmp_path)
    result.raise_for_verdict()
    assert result.verdict == "pass"


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_code_and_name(name: str, tmp_path: Path) -> None:
    code, message, case = REFUSED[name]
    with pytest.raises(IsomorphError, match=message) as caught:
        exported(case, tmp_path).raise_for_verdict()
    assert caught.value.exit_code == code
    assert caught.value.hint
    assert not list(tmp_path.glob("*.mlpackage"))
