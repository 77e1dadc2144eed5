"""An engine in memory, run on the first GPU on numpy arrays.

Works with `tensorrt` 10 and 11 and `tensorrt_rtx`, whose module it is given. Shipped as it stands
in packages for devices: imports nothing of Isomorph but `border` and `driver` beside it.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .border import (
    STORED,
    EngineInput,
    EngineTensor,
    decoded,
    encoded,
    nbytes_of,
    precision_of,
    sizes,
    unfit,
)
from .driver import Buffer, Cuda, CudaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "EngineError",
    "EngineRefusedError",
    "EngineRunner",
    "StrippedEngineError",
    "UnfitInputError",
    "output_allocator",
]

_PROFILE = 0


class EngineError(Exception):
    """An engine that does not run, and why."""


class EngineRefusedError(EngineError):
    """The runtime does not take the bytes; its logger was told why.

    `diagnostics`: names of `EngineInvalidityDiagnostics`, where the runtime has them.
    """

    def __init__(self, diagnostics: tuple[str, ...] = ()) -> None:
        told = f": {', '.join(diagnostics)}" if diagnostics else ""
        super().__init__(f"the engine cannot be loaded{told}")
        self.diagnostics = diagnostics


class StrippedEngineError(EngineError):
    """The engine was built without its weights."""


class UnfitInputError(EngineError):
    """An input's name, dtype or shape is not one that the engine takes."""


class EngineRunner:
    """An engine ready to run; `close` it, or use it in a `with`.

    Args:
        module: `tensorrt` or `tensorrt_rtx`.
        engine: the serialised engine.
        logger: an `ILogger` of the module.
        onnx: the file that a stripped engine gets its weights from.
        host_code: whether native code in the engine may be loaded (a lean runtime is in those
            that are built for several versions): only where the file is trusted.
        library: CUDA's driver; None: where the system keeps it.

    Raises:
        EngineRefusedError: the runtime does not take the bytes.
        StrippedEngineError: the weights are missing, and `onnx` does not bring them.
        EngineError: its border has tensors that numpy cannot hold, or it cannot be made ready.
        CudaError: the GPU fails, or has not memory enough.
        OSError: there is no driver.
    """

    inputs: tuple[EngineInput, ...]
    outputs: tuple[EngineTensor, ...]

    def __init__(
        self,
        module: Any,
        engine: Any,
        logger: Any,
        *,
        onnx: str | Path | None = None,
        host_code: bool = False,
        library: str | None = None,
    ) -> None:
        self._module = module
        self._buffers: dict[str, Buffer] = {}
        self._allocators: dict[str, Any] = {}
        self._runtime: Any = None
        self._engine: Any = None
        self._context: Any = None
        self._cuda: Cuda | None = Cuda(library)
        try:
            self._runtime = module.Runtime(logger)
            self._runtime.engine_host_code_allowed = host_code
            self._engine = self._deserialized(engine)
            self._refit(logger, onnx)
            self.inputs, self.outputs = self._border()
            self._context = self._engine.create_execution_context()
            if self._context is None:
                raise EngineError("TensorRT makes no execution context of the engine")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EngineRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for inputs by name; bfloat16 goes in and comes out as float32.

        Raises:
            UnfitInputError: a name, dtype or shape is not one that the engine takes.
            EngineError: TensorRT refuses or fails; its logger was told why.
            CudaError: the GPU fails, or has not memory enough.
        """
        cuda = self._opened()
        try:
            kept = self._bind(cuda, feed)
            self._execute(cuda)
            found = {tensor.name: self._fetch(cuda, tensor, kept) for tensor in self.outputs}
            cuda.synchronize()
        except BaseException:
            # Nothing may write into arrays that nobody holds any more.
            with suppress(CudaError):
                cuda.synchronize()
            raise
        return {tensor.name: decoded(tensor, found[tensor.name]) for tensor in self.outputs}

    def times(self, feed: Mapping[str, NDArray[Any]], repeats: int = 20) -> float:
        """Median seconds that the GPU takes for one run, copies left out, after one to warm up.

        Raises:
            ValueError: `repeats` is less than 1.
            UnfitInputError, EngineError, CudaError: as for `run`.
        """
        if repeats < 1:
            raise ValueError(f"repeats={repeats} is less than 1")
        cuda = self._opened()
        events: list[int] = []
        taken = []
        try:
            kept = self._bind(cuda, feed)
            self._execute(cuda)
            for _ in range(2):
                events.append(cuda.event())
            for _ in range(repeats):
                cuda.record(events[0])
                self._execute(cuda)
                cuda.record(events[1])
                cuda.synchronize()
                taken.append(cuda.seconds(*events))
            del kept
        finally:
            with suppress(CudaError):
                cuda.synchronize()
            for event in events:
                cuda.destroy(event)
        return statistics.median(taken)

    def facts(self) -> dict[str, Any]:
        """What ran: versions, GPU, layers by the precision of their outputs, memory in bytes."""
        cuda, engine = self._opened(), self._engine
        return {
            "tensorrt": str(self._module.__version__),
            "gpu": cuda.name,
            "compute capability": ".".join(map(str, cuda.capability)),
            "cuda driver": cuda.driver,
            "layers": engine.num_layers,
            "layers by precision": self._precisions(),
            "device memory": engine.device_memory_size_v2,
            "refittable": engine.refittable,
        }

    def close(self) -> None:
        """Free all that was made; a second time does nothing."""
        cuda, self._cuda = self._cuda, None
        # TensorRT's objects hold GPU memory: they go before the context that it is in.
        self._context = self._engine = self._runtime = None
        self._allocators.clear()
        if cuda is None:
            return
        # A GPU that failed refuses to free as well, which must not hide why it failed.
        for step in (cuda.use, *(buffer.free for buffer in self._buffers.values()), cuda.close):
            with suppress(CudaError):
                step()
        self._buffers.clear()

    def _opened(self) -> Cuda:
        if self._cuda is None:
            raise EngineError("the engine is closed")
        self._cuda.use()
        return self._cuda

    def _deserialized(self, engine: Any) -> Any:
        data = memoryview(engine)
        made = self._runtime.deserialize_cuda_engine(data)
        if made is None:
            raise EngineRefusedError(self._diagnostics(data))
        return made

    def _diagnostics(self, data: memoryview) -> tuple[str, ...]:
        """What TensorRT for RTX finds wrong with an engine; () where it, or another, is silent."""
        if not hasattr(self._runtime, "get_engine_validity"):
            return ()
        _, found = self._runtime.get_engine_validity(data)
        # One bit for each.
        members = self._module.EngineInvalidityDiagnostics.__members__
        return tuple(name for name, member in members.items() if found & int(member))

    def _refit(self, logger: Any, onnx: str | Path | None) -> None:
        """Give a stripped engine its weights."""
        # Docs of `get_engine_stat`: -1 for an engine with all of its weights.
        stat = self._module.EngineStat.STRIPPED_WEIGHTS_SIZE
        if self._engine.get_engine_stat(stat) <= 0:
            return
        if onnx is None:
            raise StrippedEngineError("the engine was built without its weights")
        refitter = self._module.Refitter(self._engine, logger)
        parser = self._module.OnnxParserRefitter(refitter, logger)
        if not parser.refit_from_file(str(onnx)) or not refitter.refit_cuda_engine():
            raise StrippedEngineError(
                f"the engine was built without its weights, and those of {Path(onnx).name} do not "
                "fit it"
            )

    def _border(self) -> tuple[tuple[EngineInput, ...], tuple[EngineTensor, ...]]:
        module, engine = self._module, self._engine
        inputs, outputs = [], []
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            kind = engine.get_tensor_dtype(name).name
            stored = STORED.get(kind)
            if stored is None:
                raise EngineError(f"the tensor {name} is {kind}, which numpy cannot hold")
            if engine.get_tensor_format(name) != module.TensorFormat.LINEAR:
                raise EngineError(
                    f"the tensor {name} is laid out as {engine.get_tensor_format_desc(name)}; "
                    "only row-major tensors can be given and read"
                )
            facts = (
                name,
                "bfloat16" if kind == "BF16" else stored,
                stored,
                tuple(engine.get_tensor_shape(name)),
                engine.get_tensor_location(name) == module.TensorLocation.HOST,
            )
            if engine.get_tensor_mode(name) == module.TensorIOMode.INPUT:
                inputs.append(EngineInput(*facts, *self._span(name)))
            else:
                outputs.append(EngineTensor(*facts))
        return tuple(inputs), tuple(outputs)

    def _span(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The smallest and the largest shape of an input."""
        shape = tuple(self._engine.get_tensor_shape(name))
        if min(shape, default=0) >= 0:
            return shape, shape
        low, _, high = self._engine.get_tensor_profile_shape(name, _PROFILE)
        return tuple(low), tuple(high)

    def _bind(self, cuda: Cuda, feed: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Set shapes and addresses, and copy inputs; what is returned must live until the end."""
        known = [tensor.name for tensor in self.inputs]
        if wrong := set(feed).symmetric_difference(known):
            raise UnfitInputError(
                f"the engine's inputs are {', '.join(known)}; {', '.join(sorted(wrong))} "
                "is unknown or missing"
            )
        for tensor in self.inputs:
            if reason := unfit(tensor, feed[tensor.name]):
                raise UnfitInputError(reason)
        kept = {tensor.name: encoded(tensor, feed[tensor.name]) for tensor in self.inputs}
        for tensor in self.inputs:
            array = kept[tensor.name]
            if not self._context.set_input_shape(tensor.name, tuple(array.shape)):
                raise UnfitInputError(
                    f"the engine refuses {tensor.name} of shape {sizes(array.shape)}"
                )
            if tensor.on_host:
                self._address(tensor, array.ctypes.data)
            else:
                address = self._buffer(cuda, tensor.name).reserve(array.nbytes)
                self._address(tensor, address)
                cuda.upload(address, array)
        # Shapes that the engine computes from values are known once those have addresses.
        try:
            lacking = self._context.infer_shapes()
        except RuntimeError as error:
            raise EngineError(f"the engine's shapes do not come out: {error}") from error
        if lacking:
            raise EngineError(f"the engine misses sizes of {', '.join(lacking)}")
        for output in self.outputs:
            self._bind_output(cuda, output, kept)
        return kept

    def _bind_output(self, cuda: Cuda, tensor: EngineTensor, kept: dict[str, NDArray[Any]]) -> None:
        shape = tuple(self._context.get_tensor_shape(tensor.name))
        if tensor.on_host:
            if min(shape, default=0) < 0:
                raise EngineError(f"the size of {tensor.name}, on the CPU, depends on values")
            kept[tensor.name] = np.empty(shape, tensor.stored)
            self._address(tensor, kept[tensor.name].ctypes.data)
        elif tensor.name in self._allocators:
            self._allocators[tensor.name].reset()
        elif min(shape, default=0) < 0:
            allocator = output_allocator(self._module, self._buffer(cuda, tensor.name))
            if not self._context.set_output_allocator(tensor.name, allocator):
                raise EngineError(f"the engine takes no allocator for {tensor.name}")
            self._allocators[tensor.name] = allocator
        else:
            self._address(tensor, self._buffer(cuda, tensor.name).reserve(nbytes_of(tensor, shape)))

    def _address(self, tensor: EngineTensor, address: int) -> None:
        if not self._context.set_tensor_address(tensor.name, address):
            raise EngineError(f"the engine refuses the memory of {tensor.name}")

    def _buffer(self, cuda: Cuda, name: str) -> Buffer:
        return self._buffers.setdefault(name, Buffer(cuda))

    def _execute(self, cuda: Cuda) -> None:
        done = self._context.execute_async_v3(cuda.stream)
        for allocator in self._allocators.values():
            if allocator.error is not None:
                raise allocator.error
        if not done:
            raise EngineError("TensorRT failed while it ran the engine")

    def _fetch(
        self, cuda: Cuda, tensor: EngineTensor, kept: dict[str, NDArray[Any]]
    ) -> NDArray[Any]:
        if tensor.on_host:
            return kept[tensor.name]
        if tensor.name in self._allocators:
            shape = self._allocators[tensor.name].shape
            if shape is None:
                raise EngineError(f"TensorRT did not tell the shape of {tensor.name}")
        else:
            shape = tuple(self._context.get_tensor_shape(tensor.name))
        array: NDArray[Any] = np.empty(shape, tensor.stored)
        cuda.download(array, self._buffers[tensor.name].address)
        return array

    def _precisions(self) -> dict[str, int] | str:
        """Layers by the dtype of their outputs, as the inspector tells it; else "unknown"."""
        inspector = self._engine.create_engine_inspector()
        text = inspector.get_engine_information(self._module.LayerInformationFormat.JSON)
        try:
            counts = Counter(map(precision_of, json.loads(text)["Layers"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return "unknown"
        return dict(sorted(counts.items()))


def output_allocator(module: Any, buffer: Buffer) -> Any:
    """An `IOutputAllocator` that grows `buffer`, and keeps the shape and any error."""

    class Allocator(module.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IOutputAllocator.__init__(self)
            self.reset()

        def reset(self) -> None:
            self.shape: tuple[int, ...] | None = None
            self.error: CudaError | None = None

        def reallocate_output(
            self, tensor_name: str, memory: int, size: int, alignment: int
        ) -> int | None:
            # An exception would end in TensorRT, which prints it and loses it.
            try:
                return buffer.reserve(size)
            except CudaError as error:
                self.error = error
                return None

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int | None:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return Allocator()
