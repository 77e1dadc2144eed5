"""Opening files on ONNX Runtime: what runs, what is refused, what is proven."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from isomorph.errors import InputFileError, MissingRequirementError, UsageError
from isomorph.targets.onnx.session import OnnxSession
from torch import Tensor, nn


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y


@pytest.fixture
def path(write: Any) -> Path:
    written = write(
        TwoInputs(),
        torch.randn(2, 4),
        torch.randn(4, 2),
        dynamic={"x.0": "rows:1..9", "y.1": "rows:1..9"},
    )
    found: Path = written.path
    return found


X, Y = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)


def test_file_alone_tells_its_border(path: Path) -> None:
    with OnnxSession(path) as session:
        assert [(spec.name, spec.dtype) for spec in session.inputs] == [
            ("x", "float32"),
            ("y", "float32"),
        ]
        assert str(session.inputs[0].shape[0]) == "rows"
        assert session.inputs[0].shape[1] == 4
        np.testing.assert_array_equal(session.run({"x": X, "y": Y})["output_0"], X @ Y)


def test_evidence_names_the_provider_that_ran(path: Path) -> None:
    with OnnxSession(path) as session:
        assert session.evidence.kind == "executed"
        assert session.evidence.device == "cpu"
        assert session.evidence.details["provider"] == "CPUExecutionProvider"


def test_runs_without_graph_optimisations(path: Path) -> None:
    with OnnxSession(path, optimized=False) as session:
        assert session.evidence.details["optimized"] is False
        np.testing.assert_array_equal(session.run({"x": X, "y": Y})["output_0"], X @ Y)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X}, "no value for y"),
        ({"x": X, "y": Y, "z": Y}, "no input z"),
        ({"x": X.astype(np.float64), "y": Y}, "x is float64 where the model takes float32"),
        ({"x": X[0], "y": Y}, "x has shape 4 where the model takes rowsx4"),
        ({"x": X[:, :3], "y": Y}, "x has shape 3x3 where the model takes rowsx4"),
        ({"x": X, "y": Y[:, :2]}, "y has rows=2 where another input has 3"),
    ],
)
def test_input_that_does_not_fit_is_a_usage_error(
    inputs: dict[str, Any], message: str, path: Path
) -> None:
    with OnnxSession(path) as session, pytest.raises(UsageError, match=message):
        session.run(inputs)


def test_closed_session_refuses_to_run(path: Path) -> None:
    session = OnnxSession(path)
    session.close()

    with pytest.raises(UsageError, match="closed"):
        session.run({"x": X, "y": Y})


def test_any_memory_layout_is_read_by_its_values(path: Path) -> None:
    turned = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))

    with OnnxSession(path) as session:
        found = session.run({"x": turned, "y": Y})["output_0"]

    np.testing.assert_array_equal(found, turned @ Y)


@pytest.mark.parametrize("content", [b"", b"not an onnx file", None])
def test_file_that_is_no_model_is_refused(content: bytes | None, path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)

    with pytest.raises(InputFileError):
        OnnxSession(path)


def test_missing_file_and_directory_are_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "absent.onnx", tmp_path):
        with pytest.raises(InputFileError):
            OnnxSession(missing)


def test_missing_external_data_is_refused(write: Any) -> None:
    written = write(nn.Linear(64, 64), torch.randn(2, 64), external_data="always")
    written.path.with_name("model.onnx.data").unlink()

    with pytest.raises(InputFileError, match=r"\.data"):
        OnnxSession(written.path)


def test_unknown_device_is_a_usage_error(path: Path) -> None:
    with pytest.raises(UsageError, match="cpu or cuda"):
        OnnxSession(path, "tpu")


def test_device_the_runtime_lacks_is_a_missing_requirement(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])

    with pytest.raises(MissingRequirementError, match="onnx-cuda"):
        OnnxSession(path, "cuda")


def test_silent_fallback_to_cpu_is_a_missing_requirement(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)

    with pytest.raises(MissingRequirementError, match="CUDAExecutionProvider"):
        OnnxSession(path, "cuda")


def test_missing_runtime_says_how_to_install_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(MissingRequirementError, match=r"isomorph\[onnx\]"):
        OnnxSession(path)


@pytest.mark.parametrize("kind", ["sequence", "map", "optional"])
def test_output_that_is_no_tensor_is_refused_when_opened(kind: str, tmp_path: Path) -> None:
    helper, tensor = onnx.helper, onnx.helper.make_tensor_type_proto(1, [2])
    if kind == "map":
        node = helper.make_node(
            "ZipMap", ["x"], ["parts"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        )
        inner = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
        result = helper.make_sequence_type_proto(inner)
    elif kind == "sequence":
        node = helper.make_node("SequenceConstruct", ["x"], ["parts"])
        result = helper.make_sequence_type_proto(tensor)
    else:
        node = helper.make_node("Optional", ["x"], ["parts"])
        result = helper.make_optional_type_proto(tensor)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", 1, [2] if kind != "map" else [1, 2])],
        [helper.make_value_info("parts", result)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    path = tmp_path / "parts.onnx"
    path.write_bytes(model.SerializeToString())

    with pytest.raises(InputFileError, match=r"output parts of parts\.onnx"):
        OnnxSession(path)
