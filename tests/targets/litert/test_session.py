"""A written file on LiteRT's interpreter: what it says, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.targets.litert.target import LiteRtTarget
from torch import nn

X = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh()).eval()


def test_evidence_tells_delegate_and_share(linear, write) -> None:
    with LiteRtTarget().open(write(linear, X).path) as session:
        evidence = session.evidence

    assert (evidence.kind, evidence.runtime, evidence.device) == (
        "executed",
        "ai-edge-litert",
        "cpu",
    )
    assert evidence.details["delegate"] == "XNNPACK"
    assert evidence.details["delegated"] == "2 of 2 operators"


def test_outputs_are_the_callers_own(linear, write) -> None:
    with LiteRtTarget().open(write(linear, X).path) as session:
        first = session.run({"input": X.numpy()})["output_0"]
        kept = first.copy()
        session.run({"input": 2 * X.numpy()})

    np.testing.assert_array_equal(first, kept)


def test_a_closed_session_and_a_wrong_shape_are_usage_errors(linear, write) -> None:
    session = LiteRtTarget().open(write(linear, X).path)
    with pytest.raises(UsageError, match="shape"):
        session.run({"input": X.numpy()[:1]})
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"input": X.numpy()})


def test_unknown_device_is_a_usage_error(linear, write) -> None:
    with pytest.raises(UsageError, match="cuda"):
        LiteRtTarget().open(write(linear, X).path, "cuda")


@pytest.mark.parametrize("kept", [1, 8, 40, 400, -200, -1])
def test_a_truncated_file_is_refused(kept, linear, write, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(write(linear, X).path.read_bytes()[:kept])

    with pytest.raises(InputFileError, match="not a LiteRT model"):
        LiteRtTarget().open(broken)


@pytest.mark.parametrize("content", [b"", b"TFL3" * 64, bytes(4096), os.urandom(4096)])
def test_a_file_that_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "garbage.tflite"
    path.write_bytes(content)

    with pytest.raises(InputFileError):
        LiteRtTarget().open(path)


def test_a_directory_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.tflite"):
        with pytest.raises(InputFileError):
            LiteRtTarget().open(path)


def test_another_models_file_is_refused(linear, write) -> None:
    ours = write(linear, X)
    other = write(nn.Linear(6, 3), X, stem="other")

    with pytest.raises(InputFileError, match="another model"):
        LiteRtTarget().open(other.path, signature=ours.signature)


def test_an_output_without_axes_is_an_array(write) -> None:
    class Total(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    with LiteRtTarget().open(write(Total().eval(), X).path) as session:
        (found,) = session.run({"x": X.numpy()}).values()

    assert isinstance(found, np.ndarray)
    assert found.shape == ()
