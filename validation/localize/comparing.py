"""Two files of one model on one runtime: where do their bits begin to differ?"""

from __future__ import annotations

from ...errors import IsomorphError
from ...targets.watching import Stage, Value, Watching
from ..arrays import to_numpy
from ..cases import Case
from ..parity import as_given
from .segments import Segment

__all__ = ["first_difference"]


def first_difference(fresh: Stage, file: Stage, segment: Segment, case: Case) -> Value | None:
    """The first value inside `segment` that is other bits in `file` than in `fresh`.

    Both get the fresh file's own values, so that what came before does not count.
    """
    inputs = {name: as_given(to_numpy(value)) for name, value in case.inputs.items()}
    try:
        with fresh.open() as right, file.open() as given:
            if not isinstance(right, Watching) or not isinstance(given, Watching):
                return None
            known = {value.name for value in right.values()}
            inner = [value for value in segment.inner if value.name in known]
            entering = [name for name in segment.given if name in known]
            names = [*entering, *(value.name for value in inner)]
            truth = right.run_watching(inputs, names)
            feed = {**inputs, **{name: truth[name] for name in entering}}
            feed = {name: feed[name] for name in segment.given if name in feed}
            if len(feed) < len(segment.given):
                return None
            mine = given.replay(feed, [value.name for value in inner])
    except (IsomorphError, NotImplementedError):
        return None
    for value in inner:
        a, b = truth[value.name], mine[value.name]
        if a.shape != b.shape or a.dtype != b.dtype or a.tobytes() != b.tobytes():
            return value
    return None
