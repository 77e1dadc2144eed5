"""Linear algebra and order statistics in packages, by the evaluator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

linalg = torch.linalg
_GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_GENERATOR)


def positive(*shape: int) -> torch.Tensor:
    a = normal(*shape)
    return a @ a.mT + torch.eye(shape[-1])


CASES: dict[str, tuple[Any, ...]] = {
    "inv": (linalg.inv, normal(2, 3, 3)),
    "solve": (linalg.solve, normal(3, 3), normal(3, 2)),
    "lu": (linalg.lu, normal(3, 3)),
    "det": (linalg.det, normal(2, 3, 3)),
    "cholesky": (linalg.cholesky, positive(3, 3)),
    "qr": (linalg.qr, normal(4, 3)),
    "svdvals": (linalg.svdvals, normal(3, 2)),
    "matrix_rank": (linalg.matrix_rank, normal(3, 3)),
    "matrix_exp": (linalg.matrix_exp, normal(2, 2)),
    "var": (lambda x: torch.var(x, 1), normal(3, 4)),
    "cummax": (lambda x: torch.cummax(x, 1), normal(3, 4)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), 100 * normal(3, 4)),
    "median": (lambda x: torch.median(x, 0), normal(5, 3)),
    "nanmedian": (lambda x: torch.nanmedian(x, 1)[0], normal(3, 4)),
    "mode": (lambda x: torch.mode(x)[0], normal(3, 4).round()),
    "quantile": (lambda x: torch.quantile(x, 0.3, 1), normal(3, 4)),
    "searchsorted": (torch.searchsorted, normal(5).sort()[0], normal(3)),
    "cdist": (torch.cdist, normal(3, 2), normal(4, 2)),
    "prod": (torch.prod, normal(3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_packages_compute_what_torch_does(name: str, write: Any) -> None:
    function, *tensors = CASES[name]
    write(function, *tensors).demand_right(*tensors, tolerance=1e-5)
