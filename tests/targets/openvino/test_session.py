"""Opening files on OpenVINO: what runs, what is refused, what is proven."""

from __future__ import annotations

from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, MissingRequirementError, UsageError
from isomorph.targets.openvino.session import OpenVinoSession
from isomorph.targets.openvino.target import OpenVinoOptions, OpenVinoTarget
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, x: Tensor, ids: Tensor) -> dict[str, Tensor]:
        y = self.linear(x)
        return {"y": y, "best": y.argmax(-1), "large": y > 0, "ids": ids, "again": y}


def write(folder: Path, width: int = 4, stem: str = "net") -> Path:
    torch.manual_seed(0)
    graph = isomorph.trace(
        Net(width).eval(),
        args=(torch.randn(2, width), torch.arange(3)),
        dynamic={"x.0": "rows:2..9"},
    )
    return OpenVinoTarget().convert(graph, OpenVinoOptions(), folder, stem).path


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("openvino"))


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy of the files that a test may damage."""
    for name in ("net.xml", "net.bin"):
        (tmp_path / name).write_bytes(written.with_name(name).read_bytes())
    return tmp_path / "net.xml"


FEED = {"x": np.ones((3, 4), np.float32), "ids": np.arange(3)}


def test_file_alone_tells_names_dtypes_and_bounds(path: Path) -> None:
    with OpenVinoSession(path) as session:
        assert [(s.name, s.dtype) for s in session.inputs] == [("x", "float32"), ("ids", "int64")]
        assert [(s.name, s.dtype) for s in session.outputs] == [
            ("y", "float32"),
            ("best", "int64"),
            ("large", "bool"),
            ("ids_out", "int64"),
            ("again", "float32"),
        ]
        rows = session.inputs[0].shape[0]
        assert (rows.min, rows.max) == (2, 9)


def test_outputs_that_share_a_value_have_their_own_tensors(path: Path) -> None:
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU")
    for shift in (0, 5):  # in memory shared with the caller, as a plain call has it
        ids = np.arange(3) + shift
        found = compiled({"x": FEED["x"], "ids": ids})
        np.testing.assert_array_equal(found["ids_out"], ids)
        np.testing.assert_array_equal(found["again"], found["y"])


def test_evidence_tells_device_and_precision_of_the_layers(path: Path) -> None:
    with OpenVinoSession(path) as session:
        evidence = session.evidence
    assert (evidence.kind, evidence.runtime, evidence.device) == ("executed", "openvino", "cpu")
    assert evidence.details["execution_devices"] == ["CPU"]
    assert evidence.details["layers"]["f32"] > 0
    assert not {"f16", "bf16"} & set(evidence.details["layers"])


def test_a_layer_that_ran_lower_than_the_file_is_refused(path: Path, monkeypatch) -> None:
    from isomorph.targets.openvino import session as module

    monkeypatch.setattr(module, "_layer_precisions", lambda compiled: {"bf16": 2, "f32": 1})
    with pytest.raises(MissingRequirementError, match="bf16"):
        OpenVinoSession(path)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": FEED["x"]}, "no value for ids"),
        ({**FEED, "z": FEED["x"]}, "no input z"),
        ({**FEED, "x": np.ones((3, 4))}, "x is float64 where the model takes float32"),
        ({**FEED, "ids": np.array([0, 1, 2**40])}, "ids holds 1099511627776"),
    ],
)
def test_input_that_does_not_fit_is_a_usage_error(inputs, message: str, path: Path) -> None:
    with OpenVinoSession(path) as session, pytest.raises(UsageError, match=message):
        session.run(inputs)


def test_closed_session_refuses_to_run(path: Path) -> None:
    session = OpenVinoSession(path)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run(FEED)


def truncate_bin(path: Path) -> None:
    weights = path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:-8])


def remove_bin(path: Path) -> None:
    path.with_suffix(".bin").unlink()


def garbage(path: Path) -> None:
    path.write_bytes(b"<net><layers")


def truncate_xml(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_bin(path: Path) -> None:
    folder = path.parent / "other"
    folder.mkdir()
    path.with_suffix(".bin").write_bytes(write(folder, 7).with_suffix(".bin").read_bytes())


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [truncate_bin, remove_bin, garbage, truncate_xml, empty, other_bin, directory]
)
def test_damaged_files_are_refused_with_cause_and_remedy(damage, path: Path) -> None:
    damage(path)
    with pytest.raises(InputFileError) as caught:
        OpenVinoSession(path)
    assert caught.value.hint


def test_unknown_and_absent_devices(path: Path) -> None:
    with pytest.raises(UsageError, match="cuda"):
        OpenVinoSession(path, "cuda")
    with pytest.raises(MissingRequirementError, match="NPU"):
        OpenVinoSession(path, "npu")
