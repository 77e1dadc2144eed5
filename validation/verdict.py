"""The rule that turns error figures into pass, fail or unverified.

docs/parity.md tells it in plain words. Every constant of the rule is here. They
come from a study of 40 models and 1,303 checks on ONNX Runtime, OpenVINO and
XNNPACK (the table is in docs/parity.md): no false alarm, and every fault above
30 floors caught.

With T the truth, e = y - T and a set of float32 evaluations ("lanes") that show
what the model's own arithmetic allows:

    P = max|e| / RMS(T)        M = RMS(e) / RMS(T)
    floor = the largest P and M of the lanes over all cases of a kind
    pass when P <= 6 floors and M <= 4 floors

and, over the cases of a kind together, what `pooled` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .compare import Errors, Signal, pool_errors, pool_signals

__all__ = [
    "AS_USUAL",
    "EXTREME_KINDS",
    "FULL_RULE",
    "HALF_RULE",
    "OWN_KINDS",
    "PEAK_LIMIT",
    "POOLED_BELOW",
    "POOLED_GAIN",
    "POOLED_RMS",
    "POOLED_SHIFT",
    "RMS_LIMIT",
    "TOLERANCE",
    "Floor",
    "Noise",
    "PooledLimits",
    "Ratios",
    "Rule",
    "Verdict",
    "case_floor",
    "judge_kind",
    "kind_floor",
    "over_cases",
    "over_outputs",
    "pooled_floor",
    "signal_sizes",
    "tolerance_floor",
    "unit_roundoff",
]

Verdict = Literal["pass", "fail", "unverified"]

# Study of 40 models: with weight jitter and pooling over seeds, correct runtimes reached 3.2 (peak)
# and 2.4 (RMS) floors; 6 and 4 gave no false alarm in 1,303 checks.
PEAK_LIMIT = 6.0
RMS_LIMIT = 4.0

# Over all cases of a kind together correct runtimes are nearer, and a fault stands out sooner. On
# architectures that are not held out they reached 1.5, 1.2 and 0.9; XNNPACK on large networks,
# which adds in long rows, 2.6 for the first (docs/parity.md).
POOLED_RMS = 3.5
POOLED_SHIFT = POOLED_GAIN = 4.0

# "Outputs of one to three elements make the plain floor a lottery" (same study): such outputs are
# judged on all cases of a kind together.
POOLED_BELOW = 4

# The floor is never below two units of roundoff: a runtime may round once more than eager did.
ROUNDOFFS = 2.0

# A half-precision graph's floor holds its roundings already, so half a spacing suffices, the most
# that one more rounding does; docs/precision.md tells how far correct artifacts are from it.
HALF_PEAK_LIMIT = 3.0
HALF_RMS_LIMIT = 2.0
HALF_ROUNDOFFS = 0.5

# Spacing of the numbers just above 1, by output dtype.
_EPSILON = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}

# Smallest normal float32: runtimes flush what is below it to zero.
_SMALLEST = 2.0**-126

# A case whose lanes differ by more than this share of the truth's RMS shows noise, not signal. Its
# floor counts for itself alone: it must not hide faults in the other cases of its kind.
NOISE_DOMINATED = 0.1

# Kinds of cases whose values nobody feeds a model: what they alone pass says too little.
EXTREME_KINDS = (
    *("zeros", "large", "tiny", "ones", "negative", "halves", "ties"),
    *("mask-true", "mask-false", "mask-row", "ends"),
)

# Where such a case is beyond its own floor, it is not failed while the error is invisible among
# usual values: below this share of the limits there. Correct runtimes reached 0.3.
AS_USUAL = 0.5

# Inputs that the user gave.
OWN_KINDS = ("data", "example")

# Where float64 is impossible there is no truth and no measured floor: eager is compared with these
# allowances for M (RMS); P (peak) gets 1.5 times as much, as in the rule. float32's corresponds to
# `rtol=1e-3, atol=1e-4`, the tightest fixed tolerance in use that the study found tolerable.
TOLERANCE = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 1e-4,
    "float64": 1e-10,
    "complex64": 1e-4,
    "complex128": 1e-10,
}


@dataclass(frozen=True)
class PooledLimits:
    """How far an artifact may be off over all cases of a kind together, see `pooled`."""

    rms: float
    shift: float
    gain: float


@dataclass(frozen=True)
class Rule:
    """How many floors an artifact may be off (`peak`, `rms`), and the least floor in spacings.

    `pooled`: None where the cases are judged one by one only.
    """

    peak: float
    rms: float
    roundoffs: float
    pooled: PooledLimits | None = None


FULL_RULE = Rule(
    PEAK_LIMIT,
    RMS_LIMIT,
    ROUNDOFFS,
    PooledLimits(POOLED_RMS, POOLED_SHIFT, POOLED_GAIN),
)
HALF_RULE = Rule(HALF_PEAK_LIMIT, HALF_RMS_LIMIT, HALF_ROUNDOFFS)


@dataclass(frozen=True)
class Floor:
    """Noise allowed for one output, as a multiple of RMS(T): `peak` for P, `rms` for M."""

    peak: float
    rms: float


@dataclass(frozen=True)
class Noise:
    """One output in one case: the truth's size and the errors of the lanes."""

    signal: Signal
    lanes: tuple[Errors, ...]


@dataclass(frozen=True)
class Ratios:
    """How many floors away from the truth: compare with the rule's limits."""

    peak: float
    rms: float
    rule: Rule = FULL_RULE

    @property
    def within(self) -> bool:
        return self.peak <= self.rule.peak and self.rms <= self.rule.rms

    @property
    def severity(self) -> float:
        """Larger of the two ratios, each as a share of its limit; above 1 fails."""
        return max(self.peak / self.rule.peak, self.rms / self.rule.rms)


def unit_roundoff(dtype: str) -> float:
    """The relative spacing of a float dtype's numbers; float32's for any other."""
    return _EPSILON.get(dtype, _EPSILON["float32"])


def kind_floor(noise: Sequence[Noise]) -> Floor:
    """Relative floor of one output over the cases of one kind."""
    peak = rms = 0.0
    for signal, errors in ((n.signal, n.lanes) for n in noise):
        if signal.rms == 0 or any(e.rms > NOISE_DOMINATED * signal.rms for e in errors):
            continue
        for e in errors:
            peak = max(peak, e.peak / signal.rms)
            rms = max(rms, e.rms / signal.rms)
    return Floor(peak, rms)


def case_floor(kind: Floor, noise: Noise, dtype: str, roundoffs: float = ROUNDOFFS) -> Floor:
    """Absolute floor of one case: its kind's, its own lanes', and what rounding allows."""
    signal, lanes = noise.signal, noise.lanes
    roundoff = roundoffs * unit_roundoff(dtype)
    return Floor(
        peak=max(
            kind.peak * signal.rms, roundoff * signal.peak, _SMALLEST, *(e.peak for e in lanes)
        ),
        rms=max(kind.rms * signal.rms, roundoff * signal.rms, _SMALLEST, *(e.rms for e in lanes)),
    )


def pooled_floor(noise: Sequence[Noise], dtype: str, roundoffs: float = ROUNDOFFS) -> Floor:
    """Absolute floor of a small output, all cases of a kind taken as one array."""
    signal = pool_signals(n.signal for n in noise)
    lanes = zip(*(n.lanes for n in noise))  # noqa: B905 - as many as every case has
    pooled = [pool_errors(errors) for errors in lanes]
    return case_floor(Floor(0.0, 0.0), Noise(signal, tuple(pooled)), dtype, roundoffs)


def tolerance_floor(signal: Signal, dtype: str, rule: Rule = FULL_RULE) -> Floor:
    """Absolute floor whose limits equal the fixed tolerance; for where float64 is impossible."""
    allowed = TOLERANCE.get(dtype, TOLERANCE["float32"]) / rule.rms
    return Floor(
        peak=max(allowed * max(signal.rms, signal.peak), _SMALLEST),
        rms=max(allowed * signal.rms, _SMALLEST),
    )


def judge_kind(
    noise: Sequence[Noise],
    errors: Sequence[Errors],
    dtype: str,
    *,
    tolerance: bool = False,
    rule: Rule = FULL_RULE,
    besides: Sequence[Noise] = (),
) -> list[tuple[Ratios, Floor]]:
    """Judge one output over all cases of one kind.

    Args:
        noise: per case, what the model's own arithmetic does.
        errors: per case, those of the evaluation being judged.
        dtype: the output's, or the half type that the graph computes in.
        rule: the limits and the least floor.
        tolerance: there is no measured floor; use the fixed tolerance.
        besides: noise of cases of this kind that are not judged.

    Returns:
        Per case how many floors away it is, and its absolute floor. An output
        of fewer than POOLED_BELOW elements gets the same figures in every case.
    """
    if tolerance:
        floors = [tolerance_floor(n.signal, dtype, rule) for n in noise]
    elif all(n.signal.count < POOLED_BELOW for n in noise):
        floor = pooled_floor(noise, dtype, rule.roundoffs)
        return [(_ratios(pool_errors(errors), floor, rule), floor)] * len(noise)
    else:
        kind = kind_floor([*noise, *besides])
        floors = [case_floor(kind, n, dtype, rule.roundoffs) for n in noise]
    # Both have one entry for each case.
    return [(_ratios(e, floor, rule), floor) for e, floor in zip(errors, floors)]  # noqa: B905


def signal_sizes(noise: Sequence[Noise]) -> list[float]:
    """RMS of the truth that each case of a kind is measured by; pooled for small outputs."""
    if all(n.signal.count < POOLED_BELOW for n in noise):
        return [pool_signals(n.signal for n in noise).rms] * len(noise)
    return [n.signal.rms for n in noise]


def _ratios(errors: Errors, floor: Floor, rule: Rule) -> Ratios:
    return Ratios(errors.peak / floor.peak, errors.rms / floor.rms, rule)


def over_cases(verdicts: Sequence[tuple[str, Verdict]]) -> Verdict:
    """One output's verdict from those of its cases, each with its kind.

    Fail if a case failed; pass if a case of usual values earned it. A case may
    earn nothing (the eager model itself overflows on it); the report names those.
    What the user's own input does not earn, random values do not make up for.
    """
    if any(verdict == "fail" for _, verdict in verdicts):
        return "fail"
    if any(verdict == "unverified" for kind, verdict in verdicts if kind in OWN_KINDS):
        return "unverified"
    earned = any(v == "pass" for kind, v in verdicts if kind not in EXTREME_KINDS)
    return "pass" if earned else "unverified"


def over_outputs(verdicts: Sequence[Verdict]) -> Verdict:
    """The model's verdict: every output must pass, and there must be one."""
    if "fail" in verdicts:
        return "fail"
    return "pass" if verdicts and all(v == "pass" for v in verdicts) else "unverified"
