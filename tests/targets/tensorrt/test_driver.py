"""CUDA's driver through ctypes, on a stand-in for it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from isomorph.targets.tensorrt.driver import Buffer, Cuda, CudaError


@pytest.fixture
def cuda(fake_cuda, fake_library):
    made = Cuda(str(fake_library))
    yield made
    made.close()


def test_the_gpu_says_what_it_is(cuda):
    assert (cuda.name, cuda.capability, cuda.driver) == ("Fake GPU", (8, 6), "13.2")
    assert cuda.memory() == (1 << 20, 1 << 20)


def test_what_goes_up_comes_down_after_synchronize(cuda):
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer, found = Buffer(cuda), np.zeros((2, 3), np.float32)
    cuda.upload(buffer.reserve(given.nbytes), given)
    cuda.download(found, buffer.address)
    assert not found.any(), "downloads are asynchronous"
    cuda.synchronize()
    np.testing.assert_array_equal(found, given)
    buffer.free()
    buffer.free()


def test_memory_is_freed_after_what_still_reads_it(cuda):
    given, buffer, found = np.ones(4, np.float32), Buffer(cuda), np.zeros(4, np.float32)
    cuda.upload(buffer.reserve(given.nbytes), given)
    cuda.download(found, buffer.address)
    buffer.free()
    np.testing.assert_array_equal(found, given)


def test_arrays_without_elements_are_copied_nowhere(cuda):
    nothing = np.empty((0, 3), np.float32)
    cuda.upload(0, nothing)
    cuda.download(nothing, 0)
    cuda.synchronize()


def test_a_buffer_grows_and_is_kept_for_less(cuda, fake_cuda):
    buffer = Buffer(cuda)
    assert buffer.reserve(0) != 0
    large = buffer.reserve(100)
    assert buffer.reserve(50) == large
    assert (fake_cuda.fake_live(), fake_cuda.fake_allocations()) == (1, 2)
    buffer.free()
    assert (buffer.address, buffer.size, fake_cuda.fake_live()) == (0, 0, 0)


def test_too_little_memory_is_told_apart_from_other_errors(cuda, fake_cuda):
    fake_cuda.fake_limit(64)
    buffer = Buffer(cuda)
    with pytest.raises(CudaError, match=r"out of memory .cuMemAlloc_v2, CUDA error 2") as caught:
        buffer.reserve(65)
    assert caught.value.out_of_memory
    with pytest.raises(CudaError, match="illegal memory access") as caught:
        cuda.upload(8, np.ones(1, np.float32))
    assert not caught.value.out_of_memory


def test_an_error_without_a_text_is_told_by_its_number(cuda, fake_cuda):
    fake_cuda.fake_fail(b"cuStreamSynchronize", 999)
    with pytest.raises(CudaError, match=r"unknown error .cuStreamSynchronize, CUDA error 999"):
        cuda.synchronize()


def test_events_tell_seconds(cuda, fake_cuda):
    start, end = cuda.event(), cuda.event()
    cuda.record(start)
    cuda.record(end)
    assert cuda.seconds(start, end) == pytest.approx(0.0015)
    cuda.destroy(start)
    cuda.destroy(end)


def test_another_thread_works_after_use(cuda):
    outcomes = []

    def work() -> None:
        try:
            cuda.memory()
        except CudaError as error:
            outcomes.append(error.code)
        cuda.use()
        outcomes.append(cuda.memory()[1])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcomes == [201, 1 << 20]


@pytest.mark.parametrize("function", ["cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"])
def test_a_gpu_that_does_not_start_leaves_nothing_open(fake_cuda, fake_library, function):
    fake_cuda.fake_fail(function.encode(), 100)
    with pytest.raises(CudaError, match=function):
        Cuda(str(fake_library))


def test_a_stream_that_cannot_be_made_leaves_nothing_open(fake_cuda, fake_library):
    fake_cuda.fake_fail(b"cuStreamCreate", 2)
    with pytest.raises(CudaError, match="cuStreamCreate"):
        Cuda(str(fake_library))


def test_closing_twice_is_closing_once(cuda, fake_cuda):
    cuda.close()
    cuda.close()
    assert fake_cuda.fake_open() == 0


def test_a_missing_driver_is_an_os_error():
    with pytest.raises(OSError, match="no-such-library"):
        Cuda("no-such-library.so")
