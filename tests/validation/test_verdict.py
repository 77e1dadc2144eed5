"""The rule: floors, limits, pooling, and what earns a pass."""

from __future__ import annotations

import pytest
from isomorph.validation.compare import Errors, Signal
from isomorph.validation.verdict import (
    PEAK_LIMIT,
    RMS_LIMIT,
    TOLERANCE,
    Noise,
    judge_kind,
    over_cases,
    over_outputs,
)


def errors(peak: float, rms: float, count: int = 100) -> Errors:
    return Errors(count, peak, rms, 0.0)


def noise(*lanes: Errors, rms: float = 1.0, count: int = 100) -> Noise:
    return Noise(Signal(count, 3 * rms, rms), lanes)


def ratios(noises, found, dtype="float32", **options):
    return [r for r, _ in judge_kind(noises, found, dtype, **options)]


def test_ratios_are_in_units_of_the_worst_lane():
    (got,) = ratios([noise(errors(1e-5, 1e-6), errors(5e-6, 2e-6))], [errors(3e-5, 3e-6)])
    assert (got.peak, got.rms) == (pytest.approx(3), pytest.approx(1.5))


def test_six_floors_at_the_peak_and_four_on_average_pass_and_no_more():
    known = [noise(errors(2**-8, 2**-8))]
    assert (PEAK_LIMIT, RMS_LIMIT) == (6, 4)
    assert ratios(known, [errors(6 * 2**-8, 4 * 2**-8)])[0].within
    assert not ratios(known, [errors(6.01 * 2**-8, 4 * 2**-8)])[0].within
    assert not ratios(known, [errors(6 * 2**-8, 4.01 * 2**-8)])[0].within


def test_a_floor_scales_with_the_output_from_case_to_case():
    small, large = noise(errors(1e-5, 1e-5)), noise(errors(1e-5, 1e-5), rms=100.0)
    got = ratios([small, large], [errors(1e-5, 1e-5), errors(1e-3, 1e-3)])
    assert [r.peak for r in got] == [pytest.approx(1), pytest.approx(1)]


def test_the_floor_is_never_below_two_roundoffs():
    (got,) = ratios([noise(errors(0, 0))], [errors(2 * 2**-23 * 3, 2 * 2**-23)])
    assert (got.peak, got.rms) == (1, 1)


def test_an_output_of_zeros_allows_only_what_the_lanes_show():
    silent = noise(errors(0, 0), rms=0.0)
    assert ratios([silent], [errors(0, 0)])[0].within
    assert not ratios([silent], [errors(1e-30, 1e-30)])[0].within
    assert ratios([noise(errors(1e-8, 1e-8), rms=0.0)], [errors(2e-8, 2e-8)])[0].within


def test_a_case_of_pure_noise_does_not_hide_faults_in_the_others():
    drowned, clear = noise(errors(2, 2)), noise(errors(1e-6, 1e-6))
    got = ratios([drowned, clear], [errors(2, 2), errors(1e-4, 1e-4)])
    assert got[0].within
    assert not got[1].within


def test_few_elements_are_judged_over_all_cases_together():
    lucky = noise(errors(1e-9, 1e-9, 1), count=1)
    usual = noise(errors(1e-6, 1e-6, 1), count=1)
    got = ratios([lucky, usual], [errors(1e-6, 1e-6, 1), errors(1e-9, 1e-9, 1)])
    assert got[0] == got[1]
    assert got[0].within
    assert not ratios([lucky], [errors(1e-6, 1e-6, 1)])[0].within


def test_without_float64_the_limits_equal_the_fixed_tolerance():
    allowed = TOLERANCE["float32"]
    assert ratios([noise()], [errors(allowed, allowed)], tolerance=True)[0].within
    assert not ratios([noise()], [errors(allowed, 1.01 * allowed)], tolerance=True)[0].within


def test_half_outputs_are_allowed_roundoff_of_half():
    (got,) = ratios([noise(errors(0, 0))], [errors(0, 2 * 2**-10)], dtype="float16")
    assert got.rms == 1


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([("normal", "pass"), ("large", "unverified")], "pass"),
        ([("normal", "pass"), ("large", "fail")], "fail"),
        ([("normal", "unverified"), ("zeros", "pass")], "unverified"),
        ([("data", "unverified"), ("normal", "pass")], "unverified"),
        ([("example", "unverified"), ("normal", "pass")], "unverified"),
        ([("data", "pass"), ("sizes", "unverified"), ("normal", "pass")], "pass"),
        ([], "unverified"),
    ],
)
def test_one_output_passes_when_some_usual_case_earned_it_and_none_failed(verdicts, expected):
    assert over_cases(verdicts) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "unverified"], "unverified"),
        (["unverified", "fail"], "fail"),
        ([], "unverified"),
    ],
)
def test_a_model_passes_when_every_output_does(verdicts, expected):
    assert over_outputs(verdicts) == expected
