"""Small models and their exports to TensorRT for RTX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch

Exported = Callable[..., Any]


class Linear(torch.nn.Module):
    """One matrix product and one elementwise layer, for any batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x).relu()


@pytest.fixture
def linear() -> torch.nn.Module:
    torch.manual_seed(0)
    return Linear().eval()


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    """`exported(module, inputs=[...], dynamic={...}, options={...}, ...)`: the one artifact."""

    def run(module: torch.nn.Module, **given: Any) -> Any:
        given.setdefault("output", tmp_path / "net.rtx.engine")
        return isomorph.export(module.eval(), "tensorrt-rtx", **given).artifacts[0]

    return run
