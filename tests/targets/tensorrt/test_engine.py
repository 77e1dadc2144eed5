"""Engines as sessions: what a user is told when one does not load, run or fit.

On stand-ins for the GPU and for TensorRT; the messages are those of the real libraries.
"""

from __future__ import annotations

import numpy as np
import pytest
from isomorph.errors import (
    ConversionError,
    InputFileError,
    MissingRequirementError,
    UsageError,
)
from isomorph.exporter.signature import Dim, TensorSpec
from isomorph.targets.base import Signature
from isomorph.targets.tensorrt.engine import EngineSession
from isomorph.targets.tensorrt.logger import logger_of
from isomorph.targets.tensorrt.products import RTX, TENSORRT, Product
from isomorph.targets.tensorrt.trusted import remember

X = {"name": "x", "shape": [-1, 3], "min": [1, 3], "max": [4, 3]}
Y = {"name": "y", "shape": [-1, 3], "of": "x", "op": "double"}
BATCH = Dim("batch", min=1, max=4)
SIGNATURE = Signature(
    (TensorSpec("x", "float32", (BATCH, 3)),), (TensorSpec("y", "float32", (BATCH, 3)),)
)
PRODUCTS = {"tensorrt": TENSORRT, "tensorrt_rtx": RTX}


@pytest.fixture
def opened(fake_cuda, fake_tensorrt, fake_library, tmp_path, monkeypatch):
    """`opened(signature=..., product=..., **engine)`: a session; closed at the end."""
    sessions = []

    def open_session(signature=SIGNATURE, product="tensorrt", data=None, **more):
        module = fake_tensorrt["make"](fake_cuda, product)
        monkeypatch.setattr(Product, "load", lambda self: module)
        path = tmp_path / "net.engine"
        whole = {"inputs": [X], "outputs": [Y], "product": product, **more}
        path.write_bytes(fake_tensorrt["engine_bytes"](**whole) if data is None else data)
        session = EngineSession(PRODUCTS[product], path, signature, library=str(fake_library))
        sessions.append(session)
        return session

    yield open_session
    for session in sessions:
        session.close()


def test_a_session_runs_the_engine_and_says_on_what(opened):
    with opened() as session:
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x * 2)
        assert (session.inputs, session.outputs) == (SIGNATURE.inputs, SIGNATURE.outputs)
        evidence = session.evidence
    assert (evidence.kind, evidence.runtime, evidence.version) == ("executed", "tensorrt", "11.4.0")
    assert evidence.device == "cuda"
    assert evidence.details["gpu"] == "Fake GPU"
    assert evidence.details["layers by precision"] == "unknown"
    with pytest.raises(UsageError, match=r"net\.engine is closed"):
        session.run({"x": x})
    session.close()


def test_without_a_signature_the_border_is_the_engines(opened):
    session = opened(signature=None)
    assert session.inputs == (TensorSpec("x", "float32", (Dim("x_0", min=1, max=4), 3)),)
    assert session.outputs == (TensorSpec("y", "float32", (Dim("y_0", min=0), 3)),)
    with pytest.raises(UsageError, match=r"x_0=9, and the artifact was made for 1\.\.4"):
        session.run({"x": np.ones((9, 3), np.float32)})


def test_a_profile_narrower_than_the_manifest_is_told(opened):
    wide = (TensorSpec("x", "float32", (Dim("batch", max=16), 3)),)
    session = opened(signature=Signature(wide, SIGNATURE.outputs))
    with pytest.raises(UsageError, match="x is 9x3, and the engine takes 1x3 to 4x3") as caught:
        session.run({"x": np.ones((9, 3), np.float32)})
    assert "wider --dynamic range" in caught.value.hint


@pytest.mark.parametrize(("which", "told"), [("inputs", "x:float32"), ("outputs", "y:float32")])
def test_an_engine_of_another_model_is_refused(opened, which, told):
    other = (TensorSpec("z", "int64", (2,)),)
    border = {"inputs": SIGNATURE.inputs, "outputs": SIGNATURE.outputs, which: other}
    with pytest.raises(InputFileError, match=f"its {which} are {told}, and .* z:int64"):
        opened(signature=Signature(**border))


VERSION = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current "
    "Version: 240, Serialized Engine Version: 239)"
)
LIBRARY = (
    "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is not "
    "compatible with this version of TensorRT, expecting library version 11.4.0.106 got 10.16.1.11)"
)
DEVICE = (
    "The engine plan file is generated on an incompatible device, expecting compute 8.6 got "
    "compute 7.5, please rebuild."
)
TRUNCATED = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "plan.header.size == blobSize failed. In parsePlan at /_src/runtime/dispatch/runtime.cpp:780)"
)
MEMORY = "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)"
LAYER_MEMORY = "GPU memory allocation failed during initialization of layer: node_conv2d"


@pytest.mark.parametrize(
    ("heard", "error", "told", "remedy"),
    [
        (VERSION, MissingRequirementError, "another version.*Version tag", "install the version"),
        (LIBRARY, MissingRequirementError, "another version.* got 10.16", "install the version"),
        (DEVICE, MissingRequirementError, "another GPU: .*got compute 7.5", "whose GPU is to run"),
        (TRUNCATED, InputFileError, "no TensorRT engine, or a damaged one", "export again"),
        (MEMORY, ConversionError, "out of GPU memory while loading", "lower largest size"),
        (LAYER_MEMORY, ConversionError, "out of GPU memory .*node_conv2d", "lower largest size"),
        ("odd", MissingRequirementError, "does not load net.engine: odd", "whose GPU is to run"),
    ],
)
def test_an_engine_that_does_not_load_is_told_with_its_remedy(opened, heard, error, told, remedy):
    with pytest.raises(error, match=told) as caught:
        opened(refuse=heard)
    assert remedy in caught.value.hint
    assert "runtime.cpp" not in caught.value.message


@pytest.mark.parametrize(
    ("bit", "error", "told", "remedy"),
    [
        (1, MissingRequirementError, "built by another version", "install the version"),
        (2, MissingRequirementError, "built for another GPU", "--set sm="),
        (4, MissingRequirementError, "with this NVIDIA driver", "update the NVIDIA driver"),
        (8, MissingRequirementError, "with this NVIDIA driver", "update the NVIDIA driver"),
        (16, ConversionError, "out of GPU memory", "lower largest size"),
        (32, InputFileError, "damaged", "export again"),
        (64, MissingRequirementError, "with this NVIDIA driver", "update the NVIDIA driver"),
    ],
)
def test_what_rtx_diagnoses_is_told_with_its_remedy(opened, bit, error, told, remedy):
    with pytest.raises(error, match=told) as caught:
        opened(product="tensorrt_rtx", refuse="no", diagnostics=bit)
    assert remedy in caught.value.hint


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 something else", "no TensorRT engine"),
        (b"vtrt{}", "an engine of TensorRT for RTX, which TensorRT cannot load"),
    ],
)
def test_a_file_that_is_no_engine_is_an_input_error(opened, data, told):
    with pytest.raises(InputFileError, match=told):
        opened(data=data)


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path):
    for path, told in ((tmp_path / "no.engine", "does not exist"), (tmp_path, "is a directory")):
        with pytest.raises(InputFileError, match=told):
            EngineSession(TENSORRT, path, None)


def test_a_real_engine_of_rtx_is_known_by_its_first_bytes(exported, linear, tmp_path):
    artifact = exported(linear, inputs=["x=2x8"], options={"sm": "86"}, validate=False)
    with pytest.raises(InputFileError, match="an engine of TensorRT for RTX") as caught:
        EngineSession(TENSORRT, artifact.path, None)
    assert "tensorrt-rtx" in caught.value.hint


def test_what_real_rtx_says_of_no_engine_is_understood(tmp_path, fake_cuda, fake_library):
    """The real runtime, which refuses such bytes before it asks for a GPU."""
    import tensorrt_rtx

    path = tmp_path / "no.rtx.engine"
    path.write_bytes(b"PK\x03\x04" + bytes(4000))
    with pytest.raises(InputFileError, match="no TensorRT for RTX engine"):
        EngineSession(RTX, path, None, library=str(fake_library))
    validity = tensorrt_rtx.Runtime(logger_of(tensorrt_rtx)).get_engine_validity(path.read_bytes())
    assert validity[1] == int(tensorrt_rtx.EngineInvalidityDiagnostics.MALFORMED_ENGINE)


def test_a_stripped_engine_takes_its_weights_from_the_file_beside_it(opened, tmp_path):
    stripped = {"stripped": True, "fit": "net.engine.onnx"}
    with pytest.raises(InputFileError, match="without its weights") as caught:
        opened(**stripped)
    assert "beside it as net.engine.onnx" in caught.value.hint
    (tmp_path / "net.engine.onnx").write_bytes(b"")
    with opened(**stripped) as session:
        session.run({"x": np.ones((2, 3), np.float32)})


def test_native_code_is_loaded_only_by_the_process_that_built_it(opened, tmp_path):
    with pytest.raises(InputFileError, match="carries native code"):
        opened(host_code=True)
    remember((tmp_path / "net.engine").read_bytes())
    with opened(host_code=True) as session:
        session.run({"x": np.ones((2, 3), np.float32)})
    with pytest.raises(InputFileError, match="carries native code"):
        opened(host_code=True, changed=True)


def test_too_little_gpu_memory_while_running_is_told(opened, fake_cuda):
    session = opened()
    fake_cuda.fake_limit(8)
    with pytest.raises(ConversionError, match=r"out of GPU memory while running net\.engine"):
        session.run({"x": np.ones((2, 3), np.float32)})


def test_a_run_that_fails_says_what_tensorrt_said(opened):
    session = opened(fail=["execute_async_v3"])
    with pytest.raises(ConversionError, match=r"TensorRT failed while running .*: broken"):
        session.run({"x": np.ones((2, 3), np.float32)})


def test_a_driver_that_does_not_start_or_is_not_there_is_a_missing_requirement(
    opened, fake_cuda, tmp_path
):
    fake_cuda.fake_fail(b"cuInit", 100)
    with pytest.raises(MissingRequirementError, match="cuInit, CUDA error 100") as caught:
        opened()
    assert "nvidia-smi" in caught.value.hint
    with pytest.raises(MissingRequirementError, match="driver does not load") as caught:
        EngineSession(TENSORRT, tmp_path / "net.engine", None, library="no-such-library.so")
    assert "install the NVIDIA driver" in caught.value.hint


def test_what_goes_wrong_after_opening_frees_the_engine(opened, fake_cuda, monkeypatch):
    from isomorph.targets.tensorrt.running import EngineError, EngineRunner

    def broken(self):
        raise EngineError("no facts")

    monkeypatch.setattr(EngineRunner, "facts", broken)
    with pytest.raises(ConversionError, match=r"while reading net\.engine: no facts"):
        opened()
    assert fake_cuda.fake_open() == 0
