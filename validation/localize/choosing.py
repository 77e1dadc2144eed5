"""Which of the values that are off is where the fault is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.fx import Node

from .walking import Step

__all__ = ["before", "choose", "fused_region"]


def choose(steps: Sequence[Step]) -> Step | None:
    """The step that is wrong, or None where none is.

    A step that is wrong when it is run alone, by more than the noise that its value has on its
    way through the graph, is at fault wherever its error goes. Else the first that leaves the
    floor while its inputs are within it; else the one that is farthest off alone: a fault can be
    small at its operator and grow.
    """
    guilty = [s for s in steps if s.effect is not None and not s.effect.within]
    if guilty:
        return guilty[0]
    ratios = {step.node: step for step in steps}
    crossing = [
        step
        for step in steps
        if not step.watched.within
        and all(node not in ratios or ratios[node].watched.within for node in step.inputs)
    ]
    tried = [step for step in crossing if step.alone is None or not step.alone.within]
    if tried:
        return tried[0]
    off = [s for s in steps if s.alone is not None and not s.alone.within]
    if off:
        return max(off, key=lambda s: s.effect.severity if s.effect else 0.0)
    return crossing[0] if crossing else None


def before(step: Step, steps: Sequence[Step]) -> float:
    """The worst of the step's inputs, in floors."""
    known: dict[Node, float] = {s.node: s.watched.ratio for s in steps}
    return max((known.get(node, 0.0) for node in step.inputs), default=0.0)


def fused_region(
    names: Sequence[str], passes: Callable[[Sequence[str]], bool]
) -> tuple[int, int] | None:
    """First and last of the values whose being watched undoes the fault.

    `passes` runs the artifact with some values watched. All of them watched must pass, none
    must fail; a fusion that is wrong is undone by any value inside it.
    """
    if not names or passes(()) or not passes(names):
        return None
    low, high = 0, len(names)  # watching names[:high] cures, names[:low] does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(names[:middle]) else (middle, high)
    first = high - 1
    low, high = 0, len(names)  # watching names[low:] cures, names[high:] does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(names[middle:]) else (low, middle)
    return min(first, low), max(first, low)
