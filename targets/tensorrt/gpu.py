"""Whether CUDA works here, asked before TensorRT is touched: without a GPU parts of it crash."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Gpu", "find_gpu"]

# Linux, Linux under Windows, and Jetson.
_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")
_SECONDS = 30

# In a process of its own: a broken driver may crash in cuInit. Functions and constants are those of
# the CUDA driver API (cuda.h); 75 and 76 are the major and minor of CUdevice_attribute's
# COMPUTE_CAPABILITY.
_PROBE = """
import ctypes, json, sys
cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
device, count, major, minor = (ctypes.c_int() for _ in range(4))
name = ctypes.create_string_buffer(256)
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDeviceGetName(name, 256, device) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) == 0
print(json.dumps([name.value.decode(), major.value, minor.value]))
"""


@dataclass(frozen=True)
class Gpu:
    """The first GPU: its name and compute capability, such as (8, 6)."""

    name: str
    capability: tuple[int, int]


@cache
def find_gpu() -> Gpu | None:
    """The first GPU that CUDA's driver shows; None without one. Never loads CUDA here."""
    if sys.platform != "win32" and not any(Path(node).exists() for node in _DEVICE_NODES):
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        name, major, minor = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Gpu(str(name), (int(major), int(minor)))
