"""Runs build_engine.py as a device would: without torch and Isomorph, on stand-ins for the rest.

    python -I fake_device.py SPEC SCRIPT [OPTION...]

with the folder of the fake libcuda.so.1 as LD_LIBRARY_PATH.

SPEC, JSON: `engine` (what the build gives, see `fake_tensorrt.engine_bytes`), `spoil` (what is
added to a float that the engine computes; "nan"), `flip` (a boolean comes out wrong), `fail` (what
goes wrong while building), `version`, and `absent` (modules that the device does not have).
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

SPEC = json.loads(sys.argv[1])
FAKES = runpy.run_path(str(Path(__file__).with_name("fake_tensorrt.py")))
Severity = FAKES["Severity"]
MAGIC_OF_CACHE = b"timings:"


class Absent:
    """Finds modules that no device has, and says that they are not there."""

    names = ("torch", "isomorph", "onnx", "onnxruntime", *SPEC.get("absent", ()))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class BuilderFlag(enum.IntEnum):
    TF32, REFIT, STRIP_PLAN, VERSION_COMPATIBLE = range(4)


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class MemoryPoolType(enum.IntEnum):
    WORKSPACE = 0


class ProfilingVerbosity(enum.IntEnum):
    LAYER_NAMES_ONLY, NONE, DETAILED = range(3)


class HardwareCompatibilityLevel(enum.IntEnum):
    NONE, AMPERE_PLUS, SAME_COMPUTE_CAPABILITY = range(3)


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, Any] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self.shapes[input] = [min, opt, max]


class Cache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return MAGIC_OF_CACHE + self.content


class Config:
    """Records what it is told; an engine of the stand-in tells it again."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {"flags": ["TF32"]}

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.told["flags"] = [name for name in self.told["flags"] if name != flag.name]

    def set_flag(self, flag: BuilderFlag) -> None:
        self.told["flags"].append(flag.name)

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        self.told[pool.name] = pool_size

    def create_timing_cache(self, serialized_timing_cache: bytes) -> Cache | None:
        if not serialized_timing_cache:
            return Cache(b"")
        if not serialized_timing_cache.startswith(MAGIC_OF_CACHE):
            return None
        return Cache(serialized_timing_cache[len(MAGIC_OF_CACHE) :])

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> Cache:
        self.cache.content += b"+"
        return self.cache

    def add_optimization_profile(self, profile: Profile) -> int:
        self.told["profile"] = profile.shapes
        return -1 if SPEC.get("fail") == "profile" else 0


class Network:
    path = ""


class Builder:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> Network:
        assert flags == 2, "strongly typed, as 10 has it"
        return Network()

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
        fail = SPEC.get("fail")
        if fail == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fail in ("build", "memory"):
            text = "Requested amount of GPU memory" if fail == "memory" else "no implementation"
            self._logger.log(Severity.ERROR, f"Error Code 2: {text}")
            return None
        told = {
            **config.told,
            **{name: getattr(config, name) for name in SETTINGS if name in vars(config)},
        }
        return bytes(FAKES["engine_bytes"](**SPEC["engine"], product=PRODUCT, told=told))


SETTINGS = ("builder_optimization_level", "hardware_compatibility_level", "profiling_verbosity")


class ParserError:
    def node_operator(self) -> str:
        return "Frobnicate"

    def node_name(self) -> str:
        return "node_frobnicate_3"

    def desc(self) -> str:
        return "Unsupported operator\nin line 3"


class OnnxParser:
    num_errors = 1

    def __init__(self, network: Network, logger: Any) -> None:
        pass

    def parse_from_file(self, model: str) -> bool:
        assert Path(model).is_file()
        return SPEC.get("fail") != "parser"

    def get_error(self, index: int) -> ParserError:
        return ParserError()


def spoilt(write: Any) -> Any:
    def spoil(context: Any, tensor: Any, value: Any, stream: int) -> bool:
        if (more := SPEC.get("spoil")) is not None and value.dtype.kind == "f":
            value = value.copy()
            value.reshape(-1)[:1] += np.float32(more)
        if SPEC.get("flip") and value.dtype.kind == "b":
            value = value.copy()
            value.reshape(-1)[:1] ^= True
        return bool(write(context, tensor, value, stream))

    return spoil


def make_module(driver: ctypes.CDLL) -> Any:
    module = FAKES["make"](driver, PRODUCT)
    for item in (
        *(BuilderFlag, NetworkDefinitionCreationFlag, MemoryPoolType, ProfilingVerbosity),
        *(HardwareCompatibilityLevel, Builder, OnnxParser),
    ):
        setattr(module, item.__name__, item)
    module.init_libnvinfer_plugins = lambda logger, namespace: True
    module.__version__ = SPEC.get("version", "11.4.0")
    context = FAKES["IExecutionContext"]
    context._write = spoilt(context._write)
    return module


if __name__ == "__main__":
    script, options = sys.argv[2], sys.argv[3:]
    PRODUCT = "tensorrt_rtx" if "tensorrt_rtx" in options else "tensorrt"
    sys.meta_path.insert(0, Absent())
    for name in SPEC.get("absent", ()):
        sys.modules.pop(name, None)
    driver = None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if PRODUCT not in Absent.names:
            sys.modules[PRODUCT] = make_module(driver)
    except OSError:
        pass
    sys.argv = [script, *options]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        assert not {"torch", "isomorph"} & set(sys.modules)
        if driver is not None:
            assert (driver.fake_live(), driver.fake_open()) == (0, 0), "memory is left on the GPU"
