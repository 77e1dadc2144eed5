"""What a session is given fits its artifact, or is a usage error that says what would."""

from __future__ import annotations

import numpy as np
import pytest
from isomorph.errors import UsageError
from isomorph.exporter.signature import Dim, TensorSpec
from isomorph.targets.feed import checked_feed, with_bounds

X = TensorSpec("x", "float32", (Dim("batch", min=2, max=8, step=2), 3))


def feed(*shape: int, dtype: str = "float32", specs: tuple[TensorSpec, ...] = (X,)):
    return checked_feed({"x": np.zeros(shape, dtype)}, specs)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_sizes_of_the_range_are_taken(size):
    assert feed(size, 3)["x"].shape == (size, 3)


@pytest.mark.parametrize("size", [0, 1, 3, 10])
def test_sizes_outside_the_range_are_refused_with_the_range(size):
    with pytest.raises(UsageError, match=f"batch={size}.* 2..8 in steps of 2"):
        feed(size, 3)


@pytest.mark.parametrize("bad", [(4, 4), (4,), (4, 3, 1)])
def test_other_shapes_are_refused(bad):
    with pytest.raises(UsageError, match="shape"):
        feed(*bad)


def test_lists_are_compared_as_arrays():
    with pytest.raises(UsageError, match="float64 where the model takes float32"):
        checked_feed({"x": [[1.0, 2.0, 3.0]] * 2}, (X,))


def test_bounds_come_from_the_signature_where_the_file_has_none():
    file = (TensorSpec("x", "float32", (Dim("x_0", min=0), 3)),)
    (bounded,) = with_bounds(file, (X,))
    assert bounded.shape == X.shape
    assert with_bounds(file, None) == file


def test_a_size_that_the_file_fixes_stays_fixed():
    file = (TensorSpec("x", "float32", (4, 3)),)
    assert with_bounds(file, (X,)) == file
