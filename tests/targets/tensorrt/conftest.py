"""Small models and their exports to TensorRT for RTX; stand-ins for a GPU and for TensorRT."""

from __future__ import annotations

import ctypes
import runpy
import subprocess
from collections.abc import Callable, Iterator
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


HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for CUDA's driver, compiled."""
    path = tmp_path_factory.mktemp("cuda") / "libfake_cuda.so"
    source = HERE / "fake_cuda.cpp"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture
def fake_cuda(fake_library: Path) -> Iterator[ctypes.CDLL]:
    """The stand-in for CUDA's driver; nothing may be left on it when the test ends."""
    library = ctypes.CDLL(str(fake_library))
    library.fake_limit.argtypes = (ctypes.c_size_t,)
    library.fake_within.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
    library.fake_reset()
    yield library
    left = library.fake_live(), library.fake_open()
    library.fake_reset()
    assert left == (0, 0), f"{left[0]} allocations and {left[1]} handles are left"


@pytest.fixture(scope="session")
def fake_tensorrt() -> dict[str, Any]:
    """What `fake_tensorrt.py` defines."""
    return runpy.run_path(str(HERE / "fake_tensorrt.py"))
