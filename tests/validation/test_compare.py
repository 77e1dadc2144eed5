"""Error metrics: general rules, on arrays that hypothesis makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from isomorph.validation.compare import (
    discrete_mismatches,
    errors_of,
    nonfinite_codes,
    nonfinite_mismatches,
    pool_errors,
    pool_signals,
    signal_of,
)

shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
moderate = st.floats(-1e6, 1e6, width=32)
finite = arrays.arrays(np.float32, shapes, elements=moderate)
anything = arrays.arrays(np.float32, shapes, elements=st.floats(width=32))


@given(finite)
def test_an_array_has_no_error_against_itself(x):
    errors = errors_of(x, x)
    assert (errors.peak, errors.rms, errors.relative) == (0, 0, 0)
    assert errors.count == x.size


@given(finite, st.floats(1e-3, 10))
def test_a_constant_shift_is_its_own_peak_and_rms(x, shift):
    errors = errors_of(x.astype(np.float64) + shift, x)
    if x.size:
        assert errors.peak == pytest.approx(shift, rel=1e-6)
        assert errors.rms == pytest.approx(shift, rel=1e-6)


@given(anything)
def test_rms_never_exceeds_peak_and_peak_never_the_rms_of_all(x):
    signal = signal_of(x)
    assert signal.rms <= signal.peak * (1 + 1e-12)
    assert signal.peak <= signal.rms * math.sqrt(max(signal.count, 1)) * (1 + 1e-12)


@given(finite, st.integers(1, 4))
def test_pooling_equals_measuring_the_whole(x, parts):
    pieces = np.array_split(x.reshape(-1), parts)
    pooled, whole = pool_signals(map(signal_of, pieces)), signal_of(x)
    assert (pooled.count, pooled.peak) == (whole.count, whole.peak)
    assert pooled.rms == pytest.approx(whole.rms, rel=1e-9)
    zero = np.zeros_like
    pooled_errors = pool_errors(errors_of(piece, zero(piece)) for piece in pieces)
    assert pooled_errors.rms == pytest.approx(errors_of(x, zero(x)).rms, rel=1e-9)


@given(anything, st.integers(0, 10**6), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_one_more_nonfinite_element_is_one_mismatch(x, where, value):
    if x.size == 0:
        return
    codes = nonfinite_codes(x)
    assert nonfinite_mismatches(x, codes) == 0
    changed = x.copy()
    changed.reshape(-1)[where % x.size] = value
    same = nonfinite_codes(changed).reshape(-1)[where % x.size] == codes.reshape(-1)[where % x.size]
    assert nonfinite_mismatches(changed, codes) == (0 if same else 1)


@given(anything)
def test_elements_that_are_not_finite_take_no_part_in_errors(x):
    errors = errors_of(x, np.zeros_like(x))
    assert errors.count == np.isfinite(x).sum()
    assert np.isfinite(errors.peak)


@given(arrays.arrays(np.int64, shapes), st.integers(0, 10**6))
def test_a_changed_integer_counts_unless_it_is_unstable(x, where):
    if x.size == 0:
        return
    changed = x.copy()
    changed.reshape(-1)[where % x.size] ^= 1
    assert discrete_mismatches(changed, x) == 1
    assert discrete_mismatches(changed, x, changed != x) == 0


def test_huge_and_tiny_values_neither_overflow_nor_vanish():
    assert signal_of(np.full(4, 1e300)).rms == pytest.approx(1e300)
    assert signal_of(np.full(4, 1e-300)).rms == pytest.approx(1e-300)


def test_complex_errors_are_distances_in_the_plane():
    assert errors_of(np.array([3 + 4j], np.complex64), np.array([0j])).peak == 5


def test_shapes_must_match():
    with pytest.raises(ValueError, match="shape"):
        errors_of(np.zeros((2, 1)), np.zeros((1, 2)))
