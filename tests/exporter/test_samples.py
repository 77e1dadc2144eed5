"""Samples that do not fit are told in full: all that is expected and all that is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isomorph.errors import UsageError
from isomorph.exporter.samples import MAX_SAMPLES, load_samples
from isomorph.exporter.signature import Dim, TensorSpec

SPECS = (
    TensorSpec("ids", "int64", (Dim("batch", 1, 8), 5)),
    TensorSpec("mask", "bool", (Dim("batch", 1, 8), 5)),
    TensorSpec("x", "float32", (3,)),
)
GOOD = {
    "ids": np.zeros((2, 5), np.int64),
    "mask": np.ones((2, 5), np.bool_),
    "x": np.zeros(3, np.float32),
}


@pytest.fixture
def told(tmp_path):
    """What loading a file of these arrays says."""

    def load(**arrays):
        np.savez(tmp_path / "samples.npz", **arrays)
        with pytest.raises(UsageError) as caught:
            load_samples([tmp_path / "samples.npz"], SPECS)
        assert caught.value.exit_code == 2
        return caught.value

    return load


def test_all_that_is_wrong_is_told_at_once(told):
    error = told(idx=GOOD["ids"], mask=np.ones((2, 5), np.float32), x=GOOD["x"])
    for part in (
        "samples.npz does not fit the model",
        "'idx' is no input of the model",
        "there is no ids",
        "mask is float32, not bool",
        "expected: ids int64 batch(1..8)x5, mask bool batch(1..8)x5, x float32 3",
        "found:    idx int64 2x5, mask float32 2x5, x float32 3",
    ):
        assert part in error.message, error.message
    assert error.hint == "did you mean ids for idx?"


def test_shapes_are_told_with_what_fits(told):
    error = told(**{**GOOD, "ids": np.zeros((2, 4), np.int64), "x": np.zeros((3, 3), np.float32)})
    assert "ids is 2x4, not batch(1..8)x5; x is 3x3, not 3" in error.message
    assert "expected: ids int64" in error.message
    assert "found:    ids int64 2x4" in error.message
    assert "--dynamic" in error.hint


def test_widths_may_differ_and_kinds_may_not(tmp_path, told):
    np.savez(tmp_path / "wide.npz", **{**GOOD, "x": np.zeros(3)})
    (sample,), notes = load_samples([tmp_path / "wide.npz"], SPECS)
    assert sample["x"].dtype == torch.float32
    assert not notes
    assert "x is int64, not float32" in told(**{**GOOD, "x": np.zeros(3, np.int64)}).message


def test_many_samples_along_a_first_axis(tmp_path):
    specs = (TensorSpec("x", "float32", (1, 3)),)
    np.savez(tmp_path / "many.npz", x=np.zeros((20, 3), np.float32))
    samples, notes = load_samples([tmp_path / "many.npz"], specs)
    assert len(samples) == MAX_SAMPLES
    assert samples[0]["x"].shape == (1, 3)
    assert "holds 20 samples" in notes[0]
