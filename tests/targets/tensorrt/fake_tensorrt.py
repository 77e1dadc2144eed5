"""A stand-in for the module `tensorrt` whose engines run on the stand-in for CUDA's driver.

An engine is JSON that lists tensors; each output is computed from one input. Every name here is
one that the real module has, which `test_api.py` holds against its recorded surface.
"""

from __future__ import annotations

import ctypes
import enum
import json
import types
from typing import Any

import numpy as np

MAGIC = {"tensorrt": b"ftrt", "tensorrt_rtx": b"vtrt"}


class DataType(enum.IntEnum):
    FLOAT, HALF, BF16, INT8, INT32, INT64, BOOL, UINT8, FP8 = range(9)


class TensorIOMode(enum.IntEnum):
    NONE, INPUT, OUTPUT = range(3)


class TensorLocation(enum.IntEnum):
    DEVICE, HOST = range(2)


class TensorFormat(enum.IntEnum):
    LINEAR, CHW4 = range(2)


class EngineStat(enum.IntEnum):
    TOTAL_WEIGHTS_SIZE, STRIPPED_WEIGHTS_SIZE = range(2)


class LayerInformationFormat(enum.IntEnum):
    ONELINE, JSON = range(2)


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class EngineInvalidityDiagnostics(enum.IntEnum):
    VERSION_MISMATCH, UNSUPPORTED_CC, OLD_CUDA_DRIVER, OLD_CUDA_RUNTIME = 1, 2, 4, 8
    INSUFFICIENT_GPU_MEMORY, MALFORMED_ENGINE, CUDA_ERROR = 16, 32, 64


class ILogger:
    Severity = Severity

    def log(self, severity: Severity, message: str) -> None:
        raise NotImplementedError


class IOutputAllocator:
    """Has no members of its own: see the class's docstring in the real module."""

    def __init__(self) -> None:
        self._ready = True


RELEASED: list[tuple[str, int]] = []
"""Objects that hold GPU memory, as they went, with how many handles CUDA had open then."""


class _OnGpu:
    _cuda: ctypes.CDLL

    def __del__(self) -> None:
        RELEASED.append((type(self).__name__, self._cuda.fake_open()))


_STORED = {
    DataType.FLOAT: np.float32,
    DataType.HALF: np.float16,
    DataType.BF16: np.uint16,
    DataType.INT8: np.int8,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.BOOL: np.bool_,
    DataType.UINT8: np.uint8,
}


def engine_bytes(
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
    product: str = "tensorrt",
    **more: Any,
) -> bytes:
    """A serialised engine.

    Tensors: name, dtype (of `DataType`), shape, host, format; inputs: min and max; outputs:
    `of` (an input) and `op`. `more`: `refuse` (what the logger hears while it is loaded),
    `host_code` (it has native code), `diagnostics`, `stripped`, `fit` (the ONNX file that brings
    the weights), `layers`, and `fail` (the calls that fail).
    """
    return MAGIC[product] + json.dumps({"inputs": inputs, "outputs": outputs, **more}).encode()


class Runtime:
    engine_host_code_allowed = False

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        data = bytes(serialized_engine)
        if data[:4] != MAGIC[self._module]:
            text = "Error Code 1: Serialization (Serialization assertion header.magicTag == failed"
            self._logger.log(Severity.ERROR, text)
            return None
        facts = json.loads(data[4:])
        if facts.get("host_code") and not self.engine_host_code_allowed:
            text = "lean runtime since IRuntime::getEngineHostCodeAllowed() is false."
            self._logger.log(Severity.ERROR, f"Cannot deserialize engine with {text}")
            return None
        if "refuse" in facts:
            self._logger.log(Severity.ERROR, facts["refuse"])
            return None
        return ICudaEngine(facts, self._logger, self._cuda)


class _RtxRuntime(Runtime):
    def get_engine_validity(self, buffer: Any) -> tuple[Any, int]:
        data = bytes(buffer)
        known = data[:4] == MAGIC[self._module]
        return None, json.loads(data[4:]).get("diagnostics", 0) if known else 32


class ICudaEngine(_OnGpu):
    refittable = False
    device_memory_size_v2 = 4096

    def __init__(self, facts: dict[str, Any], logger: ILogger, cuda: ctypes.CDLL) -> None:
        self._facts, self._logger, self._cuda = facts, logger, cuda
        self._tensors = {tensor["name"]: tensor for tensor in facts["inputs"] + facts["outputs"]}
        self._weighed = not facts.get("stripped")

    @property
    def num_layers(self) -> int:
        return len(self._facts["outputs"])

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        inputs = (tensor["name"] for tensor in self._facts["inputs"])
        return TensorIOMode.INPUT if name in inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._tensors[name].get("dtype", "FLOAT")]

    def get_tensor_shape(self, name: str) -> list[int]:
        return self._tensors[name]["shape"]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if self._tensors[name].get("host") else TensorLocation.DEVICE

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat[self._tensors[name].get("format", "LINEAR")]

    def get_tensor_format_desc(self, name: str) -> str:
        return "Four wide channel vectorized row major Int8 format"

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[list[int]]:
        assert profile_index == 0
        tensor = self._tensors[name]
        return [tensor["min"], tensor["max"], tensor["max"]]

    def get_engine_stat(self, stat: EngineStat) -> int:
        assert stat is EngineStat.STRIPPED_WEIGHTS_SIZE
        return 1024 if self._facts.get("stripped") else -1

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self._facts)

    def create_execution_context(self) -> IExecutionContext | None:
        assert self._weighed, "a stripped engine has no context before it is refitted"
        if "context" in self._facts.get("fail", ()):
            return None
        return IExecutionContext(self)


class EngineInspector:
    def __init__(self, facts: dict[str, Any]) -> None:
        self._layers = facts.get("layers")

    def get_engine_information(self, format: LayerInformationFormat) -> str:
        assert format is LayerInformationFormat.JSON
        return "nothing" if self._layers is None else json.dumps({"Layers": self._layers})


class Refitter:
    def __init__(self, engine: ICudaEngine, logger: ILogger) -> None:
        self._engine = engine
        self._set = False

    def refit_cuda_engine(self) -> bool:
        self._engine._weighed = self._set
        return self._set


class OnnxParserRefitter:
    def __init__(self, refitter: Refitter, logger: ILogger) -> None:
        self._refitter = refitter

    def refit_from_file(self, model: str) -> bool:
        self._refitter._set = model.endswith(self._refitter._engine._facts.get("fit", "/"))
        return self._refitter._set


class IExecutionContext(_OnGpu):
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine, self._cuda = engine, engine._cuda
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}

    def _fails(self, call: str) -> bool:
        if call in self._engine._facts.get("fail", ()):
            self._engine._logger.log(Severity.ERROR, f"IExecutionContext::{call}: broken")
            return True
        return False

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._shapes[name] = shape
        return not self._fails("set_input_shape")

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert memory, f"{name} has a null pointer"
        self._addresses[name] = memory
        return not self._fails("set_tensor_address")

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        assert output_allocator._ready
        self._allocators[name] = output_allocator
        return not self._fails("set_output_allocator")

    def infer_shapes(self) -> list[str]:
        if self._fails("infer_shapes"):
            raise RuntimeError("shapes contradict each other")
        if self._engine._facts.get("lacking"):
            return self._engine._facts["lacking"]
        lacking = {tensor["name"] for tensor in self._engine._facts["inputs"]} - set(self._shapes)
        return sorted(lacking)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        tensor = self._engine._tensors[name]
        shape = self._shapes[tensor["of"]]
        if tensor["op"] == "nonzero":
            return (len(shape), -1)
        return (len(shape),) if tensor["op"] == "shape" else shape

    def execute_async_v3(self, stream_handle: int) -> bool:
        assert stream_handle
        if self._fails("execute_async_v3"):
            return False
        return all(self._compute(tensor, stream_handle) for tensor in self._outputs())

    def _outputs(self) -> list[dict[str, Any]]:
        return self._engine._facts["outputs"]

    def _compute(self, tensor: dict[str, Any], stream: int) -> bool:
        given = self._read(tensor["of"])
        stored = _STORED[self._engine.get_tensor_dtype(tensor["name"])]
        if tensor["op"] == "nonzero":
            value = np.stack(np.nonzero(given)).astype(stored)
        elif tensor["op"] == "shape":
            value = np.array(given.shape, stored)
        elif stored is np.uint16:
            wide = (given.astype(np.uint32) << 16).view(np.float32) * 2
            value = (wide.view(np.uint32) >> 16).astype(np.uint16)
        else:
            value = ~given if stored is np.bool_ else (given * 2).astype(stored)
        return self._write(tensor, value, stream)

    def _read(self, name: str) -> Any:
        shape = self._shapes[name]
        dtype = np.dtype(_STORED[self._engine.get_tensor_dtype(name)])
        count = int(np.prod(shape, dtype=int))
        self._demand_place(name, self._addresses[name], count * dtype.itemsize)
        data = ctypes.string_at(self._addresses[name], count * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(shape)

    def _write(self, tensor: dict[str, Any], value: Any, stream: int) -> bool:
        name, data = tensor["name"], np.ascontiguousarray(value).tobytes()
        allocator = self._allocators.get(name)
        if allocator is None:
            address = self._addresses[name]
        else:
            address = allocator.reallocate_output_async(name, 0, len(data), 256, stream)
            if not address:
                self._engine._logger.log(Severity.ERROR, f"no memory for {name}")
                return False
            if "notify_shape" not in self._engine._facts.get("fail", ()):
                allocator.notify_shape(name, list(value.shape))
        self._demand_place(name, address, len(data))
        ctypes.memmove(address, data, len(data))
        return True

    def _demand_place(self, name: str, address: int, size: int) -> None:
        on_gpu = bool(self._engine._cuda.fake_within(ctypes.c_uint64(address), size))
        on_host = self._engine.get_tensor_location(name) is TensorLocation.HOST
        assert on_gpu is not on_host, f"{name} is not where the engine reads or writes it"


def make(cuda: ctypes.CDLL, name: str = "tensorrt") -> Any:
    """The module, on the stand-in for the driver that `cuda` is."""
    module = types.ModuleType(name)
    base = Runtime if name == "tensorrt" else _RtxRuntime
    runtime = type("Runtime", (base,), {"_cuda": cuda, "_module": name})
    public = [
        *(DataType, TensorIOMode, TensorLocation, TensorFormat, EngineStat),
        *(LayerInformationFormat, ILogger, IOutputAllocator, ICudaEngine, EngineInspector),
        *(Refitter, OnnxParserRefitter, IExecutionContext, runtime),
        *(() if name == "tensorrt" else (EngineInvalidityDiagnostics,)),
    ]
    for item in public:
        setattr(module, item.__name__, item)
    module.__version__ = "11.4.0"
    return module
