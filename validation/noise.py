"""Which noisy evaluations make the floor of a case, and which look for unstable decisions."""

from __future__ import annotations

from .evaluation import Policy
from .inputs.case import Noise

__all__ = ["noisy_policies", "probe_policies"]

# Noise with which unstable integers and booleans are looked for: on weights, inputs and every
# computed value, and in both directions. It is far above what a runtime does, because a random
# direction finds a near tie only if it points across it; see docs/parity.md.
_PROBE_ULPS = 32.0
_PROBE_KEYS = 2

# How far sums of equal values are off at least, see `summing`.
_SUMS_ULPS = 32.0


def noisy_policies(noise: Noise, rounds: int, *, moves: bool, decides: bool) -> tuple[Policy, ...]:
    """The evaluations besides float64 whose errors make a case's floor.

    usual: weights moved by a unit in the last place; another with inputs moved.
    edge: one with both, since what such a case allows is measured against usual ones too; where
        the graph decides, two with every computed value moved, and equal ones ordered both ways.
    constant: one with both, whole numbers too, and what sums of equal values make of them.
    exact: inputs stay where they are, at a boundary, and what is computed from them moves, whole
        numbers too.

    Args:
        noise: the case's.
        rounds: how many sets of evaluations.
        moves: an input holds floats other than zero.
        decides: the graph makes decisions, which both directions must reach.
    """
    keys = range(rounds)
    signs = (1, -1) if decides else (1,)
    if noise == "constant":
        return tuple(
            Policy("inputs", False, 1, 1, 0, key, sign, whole=True, sums=_SUMS_ULPS)
            for key in keys
            for sign in signs
        )
    if noise == "exact":
        return tuple(
            Policy("values", False, 1, 0, 1, key, sign, whole=True, sums=_SUMS_ULPS)
            for key in keys
            for sign in (1, -1)
        )
    if noise == "edge":
        both = [Policy("inputs", weights=1, inputs=1, key=key) for key in keys]
        values = [
            Policy("values", False, 1, 1, 1, key, sign)
            for key in (keys if decides else ())
            for sign in signs
        ]
        return (*both, *values)
    weights = [Policy("weights", weights=1, key=key) for key in keys]
    inputs = [Policy("inputs", inputs=1, key=key, sign=-1) for key in keys] if moves else []
    return (*weights, *inputs)


def probe_policies(noise: Noise) -> tuple[Policy, ...]:
    """The evaluations that tell which integers and booleans change under rounding noise."""
    whole = noise in ("constant", "exact")
    inputs = 0.0 if noise == "exact" else _PROBE_ULPS
    return tuple(
        Policy("probe", False, _PROBE_ULPS, inputs, _PROBE_ULPS, 100 + key, sign, whole)
        for key in range(_PROBE_KEYS)
        for sign in (1, -1)
    )
