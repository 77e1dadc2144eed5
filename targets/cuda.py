"""Whether torch could run on a GPU here, found out without importing it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["CUDA_REMEDY", "torch_has_cuda"]

CUDA_REMEDY = "install a CUDA build of torch (https://pytorch.org/get-started) and a GPU driver"
_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg")  # Linux, and Linux under Windows


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build and a driver shows a GPU."""
    spec = find_spec("torch")
    if spec is None or not spec.origin:
        return False
    library = Path(spec.origin).parent / "lib"
    built = any((library / name).exists() for name in ("libtorch_cuda.so", "torch_cuda.dll"))
    return built and any(Path(node).exists() for node in _DEVICE_NODES)
