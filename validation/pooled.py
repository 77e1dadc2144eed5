"""Judges an output over all cases of a kind together: small faults that one case does not show.

Rounding errors of a correct runtime average out, and their size hardly varies once enough elements
are taken together; what is systematic stays. So the same figures that are judged case by case have
tighter limits here. Shipped as it stands in packages that are checked on a device: numpy and the
standard library only.

Every error is first divided by the RMS floor of its case, so that no case outweighs the others.
Then, over the elements of all cases, for the artifact and for each lane:

    rms    the root of the mean square
    shift  the mean with its sign
    gain   the mean of e T / RMS(T): a result that is a little too large or too small throughout

and the artifact's figure is given as a multiple of the largest that a lane has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .compare import Errors, pool_errors, scaled_errors
from .verdict import NOISE_DOMINATED, Floor, Noise, PooledLimits, unit_roundoff

__all__ = ["FEWEST_ELEMENTS", "POOLED_KINDS", "Pooled", "pool_kind"]

# Cases of usual, varied values. Where a model is fed zeros or one value throughout, an element's
# error is that of its neighbours, and runtimes are farther off than the lanes.
POOLED_KINDS = ("data", "example", "normal", "sizes")

# Of fewer elements the figures are a lottery: drawn from correct outputs, sets of 4 and of 10
# elements exceeded the limits now and then, sets of 20 and more never did.
FEWEST_ELEMENTS = 64

# A lane's own mean is near zero by chance now and then. It counts as at least this share of the RMS
# floor, so with a limit of 4 no shift below a whole floor fails.
_LEAST_SHIFT = 0.25


@dataclass(frozen=True)
class Pooled:
    """How far one output is from the truth over `cases` cases of a kind, in floors of that pool."""

    rms: float
    shift: float
    gain: float
    cases: int
    limits: PooledLimits

    @property
    def within(self) -> bool:
        return self.severity <= 1.0

    @property
    def severity(self) -> float:
        """The largest figure as a share of its limit; above 1 fails."""
        return max(share for share, *_ in self._shares())

    @property
    def reason(self) -> str:
        """One sentence: the figure that is farthest beyond its limit."""
        _, figure, limit, what = max(self._shares())
        together = f"the {self.cases} cases of this kind together" if self.cases > 1 else "the case"
        return f"over {together}, {what}: {figure:.2f} noise floors (limit {limit:g})"

    def _shares(self) -> Sequence[tuple[float, float, float, str]]:
        limits = self.limits
        figures = (
            (self.rms, limits.rms, "its errors are too large on average"),
            (self.shift, limits.shift, "its errors have one sign"),
            (self.gain, limits.gain, "its errors grow and fall with the values"),
        )
        return [(figure / limit, figure, limit, what) for figure, limit, what in figures]


def pool_kind(
    noise: Sequence[Noise],
    floors: Sequence[Floor],
    errors: Sequence[Errors],
    dtype: str,
    limits: PooledLimits,
    roundoffs: float,
) -> Pooled | None:
    """Judge one output over the cases of one kind taken together.

    Args:
        noise: per case, what the model's own arithmetic does.
        floors: per case, the absolute floor that it is judged by alone.
        errors: per case, those of the evaluation being judged.
        dtype: the output's.
        limits: what is allowed.
        roundoffs: the least floor, in spacings of the dtype.

    Returns:
        The figures; None where there are too few elements to tell. Cases that show noise rather
        than signal are left out.
    """
    usable = [
        index
        for index, entry in enumerate(noise)
        if entry.signal.rms > 0
        and entry.lanes
        and all(lane.rms <= NOISE_DOMINATED * entry.signal.rms for lane in entry.lanes)
    ]
    if sum(errors[index].count for index in usable) < FEWEST_ELEMENTS:
        return None
    units = {index: 1.0 / floors[index].rms for index in usable}
    mine = pool_errors(scaled_errors(errors[index], units[index]) for index in usable)
    lanes = [
        pool_errors(scaled_errors(noise[index].lanes[which], units[index]) for index in usable)
        for which in range(min(len(noise[index].lanes) for index in usable))
    ]
    # What rounding the results once more would do.
    roundoff = roundoffs * unit_roundoff(dtype)
    once_more = pool_errors(
        Errors(
            noise[index].signal.count,
            0.0,
            roundoff * noise[index].signal.rms * units[index],
            0.0,
        )
        for index in usable
    )
    rms = max(once_more.rms, *(lane.rms for lane in lanes))
    least = _LEAST_SHIFT * rms
    return Pooled(
        rms=mine.rms / rms,
        shift=abs(mine.shift) / max(least, *(abs(lane.shift) for lane in lanes)),
        gain=abs(mine.gain) / max(least, *(abs(lane.gain) for lane in lanes)),
        cases=len(usable),
        limits=limits,
    )
