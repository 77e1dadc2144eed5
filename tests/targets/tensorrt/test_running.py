"""Engines on numpy arrays: what is bound, copied, grown and freed.

On stand-ins for the GPU and for TensorRT. The latter checks that each address it is given lies
where the engine wants it, on the GPU or not, with room enough; the fixture `fake_cuda` that
nothing is left when a test ends.
"""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import numpy as np
import pytest
from isomorph.targets import bfloat16
from isomorph.targets.tensorrt import border, driver, running
from isomorph.targets.tensorrt.driver import CudaError
from isomorph.targets.tensorrt.logger import collected_errors, logger_of
from isomorph.targets.tensorrt.running import (
    EngineError,
    EngineRefusedError,
    EngineRunner,
    StrippedEngineError,
    UnfitInputError,
)

X = {"name": "x", "shape": [-1, 3], "min": [1, 3], "max": [4, 3]}
Y = {"name": "y", "shape": [-1, 3], "of": "x", "op": "double"}


@pytest.fixture
def module(fake_cuda, fake_tensorrt):
    return fake_tensorrt["make"](fake_cuda)


@pytest.fixture
def opened(module, fake_tensorrt, fake_library):
    """`opened(inputs, outputs, ...)`: a runner on an engine with these; closed at the end."""
    runners = []

    def open_engine(inputs=(X,), outputs=(Y,), onnx=None, **more):
        data = fake_tensorrt["engine_bytes"](list(inputs), list(outputs), **more)
        logger = logger_of(module)
        runner = EngineRunner(module, data, logger, onnx=onnx, library=str(fake_library))
        runners.append(runner)
        return runner

    yield open_engine
    for runner in runners:
        runner.close()


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


def test_sizes_may_change_from_run_to_run_and_buffers_only_grow(opened, fake_cuda):
    runner = opened()
    for batch, allocated in ((1, 2), (4, 4), (2, 4)):
        x = values(batch, 3)
        np.testing.assert_array_equal(runner.run({"x": x})["y"], x * 2)
        assert fake_cuda.fake_allocations() == allocated
    assert fake_cuda.fake_live() == 2
    runner.close()
    assert (fake_cuda.fake_live(), fake_cuda.fake_open()) == (0, 0)


def test_arrays_that_are_not_contiguous_are_read_right(opened):
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(opened().run({"x": x})["y"], x * 2)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *(("FLOAT", "float32"), ("HALF", "float16"), ("INT8", "int8"), ("UINT8", "uint8")),
        *(("INT32", "int32"), ("INT64", "int64"), ("BOOL", "bool")),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_dtypes_ranks_and_sizes_of_nothing(opened, kind, dtype, shape):
    tensor = {"dtype": kind, "shape": list(shape)}
    runner = opened([{**X, **tensor}], [{**Y, **tensor}])
    x = values(*shape, dtype=dtype)
    y = runner.run({"x": x})["y"]
    assert (str(y.dtype), y.shape) == (dtype, shape)
    np.testing.assert_array_equal(y, ~x if dtype == "bool" else x * x.dtype.type(2))
    assert runner.inputs[0].dtype == runner.outputs[0].dtype == dtype


@pytest.mark.parametrize("shape", [(6,), ()])
def test_bfloat16_goes_in_and_comes_out_as_float32(opened, shape):
    tensor = {"dtype": "BF16", "shape": list(shape)}
    runner = opened([{**X, **tensor}], [{**Y, **tensor}])
    # A tie to even below and above, infinity, and a NaN whose low bits would round to infinity.
    x = np.array([1, 0x3F808000, 0x3F818000, 0x7F800000, 0x7F800001, 0xBF80C000], np.uint32)
    x = np.resize(x.view(np.float32), shape) if shape else x.view(np.float32)[1].reshape(())
    y = runner.run({"x": x})["y"]
    assert (y.dtype, y.shape) == (np.float32, shape)
    np.testing.assert_array_equal(y, bfloat16.from_bits(bfloat16.to_bits(x)) * 2)
    assert (runner.inputs[0].dtype, runner.inputs[0].array_dtype) == ("bfloat16", "float32")


def test_outputs_whose_size_depends_on_values(opened, fake_cuda):
    found = {"name": "where", "dtype": "INT64", "shape": [2, -1], "of": "x", "op": "nonzero"}
    runner = opened([X], [Y, found])
    for x in (values(2, 3), np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)):
        outputs = runner.run({"x": x})
        np.testing.assert_array_equal(outputs["where"], np.stack(np.nonzero(x)))
        np.testing.assert_array_equal(outputs["y"], x * 2)
    assert outputs["where"].shape == (2, 0)


def test_the_real_base_class_takes_the_allocator(fake_cuda, fake_library):
    import tensorrt_rtx

    cuda = driver.Cuda(str(fake_library))
    buffer = driver.Buffer(cuda)
    allocator = running.output_allocator(tensorrt_rtx, buffer)
    assert isinstance(allocator, tensorrt_rtx.IOutputAllocator)
    address = allocator.reallocate_output_async("y", 0, 64, 256, cuda.stream)
    allocator.notify_shape("y", tensorrt_rtx.Dims((2, 8)))
    assert (address, buffer.size, allocator.shape) == (buffer.address, 64, (2, 8))
    buffer.free()
    cuda.close()


def test_too_little_memory_for_such_an_output_is_told_as_that(opened, fake_cuda):
    found = {"name": "where", "dtype": "INT64", "shape": [2, -1], "of": "x", "op": "nonzero"}
    runner = opened([X], [found])
    fake_cuda.fake_limit(4 * 12 + 8)
    with pytest.raises(CudaError, match="out of memory"):
        runner.run({"x": np.ones((4, 3), np.float32)})
    fake_cuda.fake_limit(1 << 20)
    x = values(4, 3)
    np.testing.assert_array_equal(runner.run({"x": x})["where"], np.stack(np.nonzero(x)))


def test_tensors_on_the_host_stay_there(opened, fake_cuda):
    sizes = {"name": "sizes", "dtype": "INT64", "shape": [2], "host": True}
    told = {"name": "told", "dtype": "INT64", "shape": [2], "host": True, "of": "sizes"}
    shape = {"name": "shape", "dtype": "INT64", "shape": [2], "host": True, "of": "x"}
    runner = opened([X, sizes], [{**told, "op": "double"}, {**shape, "op": "shape"}])
    given = {"x": values(2, 3), "sizes": np.array([5, 6])}
    outputs = runner.run(given)
    assert outputs["told"].tolist() == [10, 12]
    assert outputs["shape"].tolist() == [2, 3]
    assert fake_cuda.fake_live() == 1, "only x is on the GPU"
    again = runner.run({**given, "sizes": np.array([7, 8])})
    assert (outputs["told"].tolist(), again["told"].tolist()) == ([10, 12], [14, 16])


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        ({"x": values(9, 3)}, "x is 9x3, and the engine takes 1x3 to 4x3"),
        ({"x": values(3)}, "x is 3, and the engine takes 1x3 to 4x3"),
        ({"x": values(1, 3, dtype="float16")}, "x is float16 where the engine takes float32"),
        ({"x": values(1, 3), "z": values(1)}, "inputs are x; z is unknown or missing"),
        ({}, "inputs are x; x is unknown or missing"),
    ],
)
def test_inputs_that_do_not_fit_are_named(opened, feed, told):
    runner = opened()
    with pytest.raises(UnfitInputError, match=told):
        runner.run(feed)
    np.testing.assert_array_equal(runner.run({"x": values(2, 3)})["y"], values(2, 3) * 2)


def test_an_input_of_fixed_size_has_no_range(opened):
    runner = opened([{"name": "x", "shape": [2, 3]}])
    with pytest.raises(UnfitInputError, match=r"x is 9x3, and the engine takes 2x3$"):
        runner.run({"x": values(9, 3)})


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"fail": ["set_input_shape"]}, "refuses x of shape 2x3"),
        ({"fail": ["set_tensor_address"]}, "refuses the memory of x"),
        ({"fail": ["infer_shapes"]}, "shapes do not come out: shapes contradict"),
        ({"lacking": ["x"]}, "misses sizes of x"),
        ({"fail": ["execute_async_v3"]}, "failed while it ran"),
    ],
)
def test_calls_that_fail_are_errors(opened, more, told):
    runner = opened(**more)
    with collected_errors() as errors, pytest.raises(EngineError, match=told):
        runner.run({"x": values(2, 3)})
    assert bool(errors) is ("fail" in more)


@pytest.mark.parametrize(
    ("output", "fail", "told"),
    [
        ({}, "set_output_allocator", "takes no allocator for where"),
        ({}, "notify_shape", "did not tell the shape of where"),
        ({"host": True}, "", "the size of where, on the CPU, depends on values"),
    ],
)
def test_outputs_that_cannot_be_had_are_errors(opened, output, fail, told):
    found = {"name": "where", "dtype": "INT64", "shape": [2, -1], "of": "x", "op": "nonzero"}
    with pytest.raises(EngineError, match=told):
        opened([X], [{**found, **output}], fail=[fail]).run({"x": values(2, 3)})


@pytest.mark.parametrize(
    ("tensor", "more", "told"),
    [
        ({"dtype": "FP8"}, {}, "the tensor x is FP8, which numpy cannot hold"),
        ({"format": "CHW4"}, {}, "the tensor x is laid out as Four wide channel"),
        ({}, {"fail": ["context"]}, "no execution context"),
        ({}, {"refuse": "Version tag does not match"}, "the engine cannot be loaded$"),
    ],
)
def test_engines_that_do_not_open_leave_nothing(opened, fake_cuda, tensor, more, told):
    with pytest.raises(EngineError, match=told):
        opened([{**X, **tensor}], **more)
    assert (fake_cuda.fake_live(), fake_cuda.fake_open()) == (0, 0)


def test_rtx_says_what_is_wrong_with_an_engine(fake_cuda, fake_tensorrt, fake_library):
    module = fake_tensorrt["make"](fake_cuda, "tensorrt_rtx")
    data = fake_tensorrt["engine_bytes"]([X], [Y], "tensorrt_rtx", refuse="no", diagnostics=3)
    with pytest.raises(EngineRefusedError, match="VERSION_MISMATCH, UNSUPPORTED_CC") as caught:
        EngineRunner(module, data, logger_of(module), library=str(fake_library))
    assert caught.value.diagnostics == ("VERSION_MISMATCH", "UNSUPPORTED_CC")


def test_a_stripped_engine_runs_after_it_is_refitted(opened):
    stripped = {"stripped": True, "fit": "right.onnx"}
    with pytest.raises(StrippedEngineError, match=r"was built without its weights$"):
        opened(**stripped)
    with pytest.raises(StrippedEngineError, match=r"those of wrong\.onnx do not fit"):
        opened(onnx="some/wrong.onnx", **stripped)
    runner = opened(onnx=Path("some/right.onnx"), **stripped)
    np.testing.assert_array_equal(runner.run({"x": values(2, 3)})["y"], values(2, 3) * 2)


def test_a_run_that_fails_leaves_the_runner_usable_and_free_to_close(opened, fake_cuda):
    runner = opened()
    fake_cuda.fake_limit(4)
    with pytest.raises(CudaError) as caught:
        runner.run({"x": values(4, 3)})
    assert caught.value.out_of_memory
    fake_cuda.fake_limit(1 << 20)
    np.testing.assert_array_equal(runner.run({"x": values(4, 3)})["y"], values(4, 3) * 2)


def test_a_gpu_that_fails_for_good_does_not_hide_why(opened, fake_cuda):
    runner = opened()
    runner.run({"x": values(2, 3)})
    fake_cuda.fake_fail(b"cuStreamSynchronize", 700)
    with pytest.raises(CudaError, match="illegal memory access"), runner:
        runner.run({"x": values(2, 3)})
    assert fake_cuda.fake_open() == 0
    fake_cuda.fake_reset()


def test_times_are_the_gpus(opened, fake_cuda):
    runner = opened()
    assert runner.times({"x": values(2, 3)}, 3) == pytest.approx(0.0015)
    assert fake_cuda.fake_open() == 2, "the context and the stream, no events"
    with pytest.raises(ValueError, match="repeats=0"):
        runner.times({"x": values(2, 3)}, 0)
    with pytest.raises(UnfitInputError):
        runner.times({"x": values(9, 3)}, 1)


def test_facts_say_what_ran(opened):
    described = {"Outputs": [{"Name": "y", "Format/Datatype": "Row major linear FP16 format"}]}
    layers = [
        *(described, {"Outputs": [{"Format/Datatype": "Half"}]}, "a name alone", {"Outputs": []}),
        {"Outputs": [{"Format/Datatype": "Float"}, {"Format/Datatype": "BFloat16"}]},
        {"Outputs": [{"Format/Datatype": "Thirty-two wide channel vectorized row major Int8"}]},
        {"Outputs": [{"Format/Datatype": "N/A due to dynamic shapes"}]},
    ]
    facts = opened(layers=layers).facts()
    assert facts == {
        "tensorrt": "11.4.0",
        "gpu": "Fake GPU",
        "compute capability": "8.6",
        "cuda driver": "13.2",
        "layers": 1,
        "layers by precision": {
            **{"bfloat16 and float32": 1, "float16": 2, "int8": 1, "unknown": 3},
        },
        "device memory": 4096,
        "refittable": False,
    }


@pytest.mark.parametrize("layers", [None, 7])
def test_an_inspector_that_says_nothing_is_unknown(opened, layers):
    assert opened(layers=layers).facts()["layers by precision"] == "unknown"


def test_what_holds_gpu_memory_goes_before_the_context_it_is_in(opened, fake_tensorrt):
    runner = opened()
    fake_tensorrt["RELEASED"].clear()
    runner.close()
    released = [("IExecutionContext", 2), ("ICudaEngine", 2)]
    assert fake_tensorrt["RELEASED"] == released, "2: CUDA's context and stream are still open"


def test_a_closed_runner_says_so(opened):
    runner = opened()
    with runner:
        pass
    runner.close()
    with pytest.raises(EngineError, match="closed"):
        runner.run({"x": values(2, 3)})


def test_another_thread_may_run_it(opened):
    runner, found = opened(), []
    thread = threading.Thread(target=lambda: found.append(runner.run({"x": values(2, 3)})["y"]))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], values(2, 3) * 2)


@pytest.mark.parametrize("shipped", [border, driver, running])
def test_what_is_shipped_to_devices_imports_nothing_of_isomorph(shipped):
    text = Path(shipped.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    assert "strict=" not in text, "zip has it from Python 3.10 on"
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    standard = {
        "__future__",
        "collections",
        "collections.abc",
        "contextlib",
        "ctypes",
        "dataclasses",
    }
    standard |= {"json", "pathlib", "re", "statistics", "sys", "typing"}
    assert modules - standard <= {"numpy", "numpy.typing", ".border", ".driver"}
