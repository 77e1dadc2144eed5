"""CUDA memory and one stream on the first GPU, through the driver that every GPU machine has.

Needs neither torch nor the CUDA toolkit. Shipped as it stands in packages for devices: imports
nothing of Isomorph.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Buffer", "Cuda", "CudaError"]

# Results and attributes of the CUDA driver API (cuda.h).
_SUCCESS = 0
_OUT_OF_MEMORY = 2
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

# CUdeviceptr is a 64-bit integer; contexts, streams and events are pointers; CUresult, CUdevice
# and CUdevice_attribute are ints. Names with _v2 are what cuda.h makes of the plain ones.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}


class CudaError(Exception):
    """A call that CUDA's driver refused; `code` is its CUresult."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{text} ({function}, CUDA error {code})")
        self.code = code

    @property
    def out_of_memory(self) -> bool:
        """Whether the GPU's memory did not suffice."""
        return self.code == _OUT_OF_MEMORY


class Buffer:
    """GPU memory that grows; `address` is never 0 after `reserve`."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.address = 0
        self.size = 0

    def reserve(self, size: int) -> int:
        """At least `size` bytes, whose address is returned; what they held is lost.

        Addresses are multiples of 256, as the CUDA programming guide has it of all allocations.

        Raises:
            CudaError: the GPU has not that much left.
        """
        # TensorRT takes no null pointer, not even for a tensor without elements.
        size = max(size, 1)
        if size > self.size:
            self.free()
            self.address = self._cuda.allocate(size)
            self.size = size
        return self.address

    def free(self) -> None:
        """Give the memory back, after the GPU is done with it."""
        if self.address:
            self._cuda.synchronize()
            address, self.address, self.size = self.address, 0, 0
            self._cuda.release(address)


class Cuda:
    """The first GPU's primary context, which TensorRT uses too, and a stream of our own.

    Args:
        library: the driver's file; None: where the system keeps it.

    Attributes:
        name: the GPU's.
        capability: its compute capability, such as (8, 6).
        driver: the newest CUDA that the driver knows, such as "13.0".
        stream: handle of the stream.

    Raises:
        CudaError: there is no GPU, or it does not start.
        OSError: there is no driver.
    """

    def __init__(self, library: str | None = None) -> None:
        self._library = ctypes.CDLL(library or _LIBRARY)
        for function, types in _FUNCTIONS.items():
            entry = getattr(self._library, function)
            entry.argtypes, entry.restype = types, c_int
        error_string = self._library.cuGetErrorString
        error_string.argtypes, error_string.restype = (c_int, POINTER(c_char_p)), c_int
        self.stream = 0
        self._context = c_void_p()
        self._device = c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", byref(self._device), 0)
        self.name = self._device_name()
        self.capability = (
            self._attribute(_CAPABILITY_MAJOR),
            self._attribute(_CAPABILITY_MINOR),
        )
        self.driver = self._driver_version()
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        try:
            self.use()
            stream = c_void_p()
            self._call("cuStreamCreate", byref(stream), 0)
            self.stream = stream.value or 0
        except BaseException:
            self.close()
            raise

    def use(self) -> None:
        """Make the context this thread's; each thread needs it before its first call."""
        self._call("cuCtxSetCurrent", self._context)

    def memory(self) -> tuple[int, int]:
        """Free and total GPU memory in bytes."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Address of `size` (> 0) new bytes on the GPU.

        Raises:
            CudaError: there are not that many.
        """
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), size)
        return address.value

    def release(self, address: int) -> None:
        """Free what `allocate` gave."""
        self._call("cuMemFree_v2", address)

    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the GPU; it must live until `synchronize`."""
        if array.nbytes:
            self._call(
                "cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, self.stream
            )

    def download(self, array: NDArray[Any], address: int) -> None:
        """Copy from the GPU into a contiguous array, which is filled after `synchronize`."""
        if array.nbytes:
            self._call(
                "cuMemcpyDtoHAsync_v2", array.ctypes.data, address, array.nbytes, self.stream
            )

    def synchronize(self) -> None:
        """Wait until the stream has done all that it was given.

        Raises:
            CudaError: some of it failed.
        """
        self._call("cuStreamSynchronize", self.stream)

    def event(self) -> int:
        """Handle of a new event, which marks a point in the stream; `destroy` it."""
        made = c_void_p()
        self._call("cuEventCreate", byref(made), 0)
        return made.value or 0

    def record(self, event: int) -> None:
        """Let the stream pass the event."""
        self._call("cuEventRecord", event, self.stream)

    def seconds(self, start: int, end: int) -> float:
        """Time between two recorded events that the stream has passed."""
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), start, end)
        return milliseconds.value / 1000

    def destroy(self, event: int) -> None:
        """Release an event."""
        self._call("cuEventDestroy_v2", event)

    def close(self) -> None:
        """Release the stream and the context; a second time does nothing."""
        if not self._context:
            return
        stream, self.stream = self.stream, 0
        try:
            if stream:
                self.use()
                self._call("cuStreamDestroy_v2", stream)
        finally:
            self._context = c_void_p()
            self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != _SUCCESS:
            raise CudaError(function, code, self._text(code))

    def _text(self, code: int) -> str:
        text = c_char_p()
        known = self._library.cuGetErrorString(code, byref(text)) == _SUCCESS
        return text.value.decode(errors="replace") if known and text.value else "unknown error"

    def _device_name(self) -> str:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        return name.value.decode(errors="replace")

    def _attribute(self, which: int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), which, self._device)
        return value.value

    def _driver_version(self) -> str:
        # 1000 * major + 10 * minor (cuda.h, cuDriverGetVersion).
        version = c_int()
        self._call("cuDriverGetVersion", byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
