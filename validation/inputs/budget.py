"""How many cases there is time for: estimated from the graph, never clocked.

A clock would let the number of cases, and so a verdict or a manifest, depend on what else the
machine does. The same graph and the same budget give the same cases everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...errors import UsageError

if TYPE_CHECKING:
    from .case import Case
    from .draw import Draw
    from .generators import Generator

__all__ = ["DEFAULT_BUDGET", "check_budget", "choose", "estimated_seconds"]

# Seconds for the cases of one model.
DEFAULT_BUDGET = 5.0

# What a case costs: eager, float64 (twice as slow), two noisy lanes and the artifact. The rates are
# of one core of a common machine, so that an estimate errs on the slow side.
_EVALUATIONS = 6.0
_OPERATIONS_PER_SECOND = 1e10
_NODE_SECONDS = 3e-5

# However great the budget, a generator makes no more cases than this times its usual number.
_MOST_TIMES = 32


def check_budget(seconds: float | None) -> float:
    """The budget to use.

    Raises:
        UsageError: it is negative or no number.
    """
    if seconds is None:
        return DEFAULT_BUDGET
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(
            f"the budget is {seconds:g} seconds",
            hint="give the seconds that further cases may take, such as 30; 0 tries the fewest",
        )
    return float(seconds)


def estimated_seconds(draw: Draw, case: Case) -> float:
    """About how long a case takes to evaluate and to run."""
    sizes = {
        size.name: case.inputs[spec.name].shape[axis]
        for spec in draw.graph.inputs
        for axis, size in enumerate(spec.shape)
        if not isinstance(size, int)
    }
    once = draw.cost.at(sizes).operations / _OPERATIONS_PER_SECOND
    return _EVALUATIONS * (once + draw.cost.nodes * _NODE_SECONDS)


def choose(
    draw: Draw, generators: Sequence[Generator], given: Sequence[Case], budget: float
) -> tuple[list[Case], str | None]:
    """The cases to try besides the `given` ones, and a note on those there is no time for.

    The first cases of each generator are tried always. Then each gives one more in turn, until the
    next would exceed the budget: a greater budget adds cases and removes none.
    """
    waiting = {generator.name: generator(draw) for generator in generators}
    chosen: dict[str, list[Case]] = {}
    spent = sum(estimated_seconds(draw, case) for case in given)
    for generator in generators:
        cases = _take(waiting[generator.name], generator.always(draw))
        chosen[generator.name] = cases
        spent += sum(estimated_seconds(draw, case) for case in cases)
    times = min(max(1.0, budget / DEFAULT_BUDGET), _MOST_TIMES)
    left_out: list[Case] = []
    needed = spent
    for name, case in _further(generators, chosen, waiting, times):
        seconds = estimated_seconds(draw, case)
        needed += seconds
        if left_out or spent + seconds > budget:
            left_out.append(case)
            continue
        spent += seconds
        chosen[name].append(case)
    cases = [case for found in chosen.values() for case in found]
    return cases, _told(len(given) + len(cases), left_out, budget, needed)


def _take(cases: Iterator[Case], count: int) -> list[Case]:
    return [case for _, case in zip(range(count), cases)]  # noqa: B905 - the shorter of the two


def _further(
    generators: Sequence[Generator],
    chosen: dict[str, list[Case]],
    waiting: dict[str, Iterator[Case]],
    times: float,
) -> Iterator[tuple[str, Case]]:
    """What else may be tried, in turn."""
    limits = {g.name: int(g.usual * times) for g in generators}
    given = {name: len(cases) for name, cases in chosen.items()}
    while limits:
        for name in list(limits):
            case = next(waiting[name], None) if given[name] < limits[name] else None
            if case is None:
                del limits[name]
                continue
            given[name] += 1
            yield name, case


def _told(count: int, left_out: Sequence[Case], budget: float, needed: float) -> str | None:
    if not left_out:
        return None
    names = ", ".join(case.name for case in left_out)
    return (
        f"{count} cases are tried; the budget of {budget:g} s has no time for {len(left_out)} more "
        f"({names}): a budget of {math.ceil(needed)} s has"
    )
