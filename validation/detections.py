"""Detections: boxes, scores and labels whose rows may come in another order or number.

A detector keeps the boxes whose score is above a threshold, drops those that overlap a better one,
and orders the rest. Where two scores tie to within rounding, or one lies on the threshold, runtimes
decide differently, and row by row nothing agrees. So rows are matched by box first and the matched
ones compared by the rule. What is missing or too much is allowed only where the model's own lanes
disagree on that very box. Shipped as it stands in packages that are checked on a device: numpy and
the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .expected import Reference
    from .verdict import Verdict

    Arrays = Mapping[str, NDArray[Any]]

__all__ = [
    "Group",
    "Mismatch",
    "Rows",
    "RowsTold",
    "absorb",
    "align",
    "explain",
    "find_groups",
    "loosen",
    "match_rows",
]

Array = NDArray[Any]

# Two boxes may be the same one where they overlap by half or more, as detectors are scored.
_SAME_BOX = 0.5

# What torchvision's detection models call their outputs, and what else has a row for each box.
_BOXES, _SCORES, _LABELS = "boxes", "scores", "labels"
_FURTHER = ("masks", "keypoints", "keypoints_scores")


@dataclass(frozen=True)
class Group:
    """Outputs that have a row for each box.

    `boxes` [..., N, 4] holds x1, y1, x2, y2; `scores` and `labels` are [..., N], and `labels` may
    be "" where there are none; `further` are other outputs with such rows.
    """

    boxes: str
    scores: str
    labels: str = ""
    further: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.boxes, self.scores, self.labels, *self.further)))


@dataclass(frozen=True)
class Rows:
    """What rounding noise does to the rows of one group in one case.

    loose: per row of the truth, whether a lane lacks it.
    extra: values by output of the rows that only lanes have, in one axis; `item` tells the image.
    reach: by output, the largest distance between a lane and the truth in matched rows.
    """

    loose: NDArray[np.bool_]
    item: NDArray[np.int64]
    extra: Mapping[str, Array]
    reach: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mismatch:
    """How the rows of one evaluation differ from the truth's, before anything is excused.

    missing: per row of the truth, whether nothing matches it.
    item, extra: rows that match none of the truth's, as in `Rows`.
    disorder: the rows are not in the order that the model gives them.
    """

    missing: NDArray[np.bool_]
    item: NDArray[np.int64]
    extra: Mapping[str, Array]
    disorder: bool = False


@dataclass(frozen=True)
class RowsTold:
    """What matching the rows of detections showed: `reason` is empty where it decides nothing."""

    verdict: Verdict
    reason: str
    wrong: int
    excused: int


def find_groups(shapes: Mapping[str, Sequence[Any]], floats: Sequence[str]) -> tuple[Group, ...]:
    """Groups that outputs form by torchvision's names, if their shapes agree.

    Args:
        shapes: by output; a dim is the same where it compares equal.
        floats: outputs that hold floats.
    """
    groups = []
    for boxes in shapes:
        prefix = boxes[: -len(_BOXES)]
        scores, labels = prefix + _SCORES, prefix + _LABELS
        if not boxes.endswith(_BOXES) or (prefix and not prefix.endswith("_")):
            continue
        rows = list(shapes.get(scores, ()))
        if not rows or list(shapes[boxes]) != [*rows, 4] or not {boxes, scores} <= {*floats}:
            continue
        if labels in shapes and list(shapes[labels]) != rows:
            continue
        further = tuple(
            name
            for name in (prefix + word for word in _FURTHER)
            if list(shapes.get(name, ()))[: len(rows)] == rows
        )
        groups.append(Group(boxes, scores, labels if labels in shapes else "", further))
    return tuple(groups)


def align(group: Group, values: Arrays, truth: Arrays) -> tuple[dict[str, Array], Mismatch] | None:
    """The rows of `values` in the order of the truth's, and what does not match.

    A row that nothing matches holds the truth's own values: it is told in the mismatch.

    Returns:
        The group's outputs in the truth's shapes; None where the outputs of the group have not the
        shapes that make rows comparable, which is told elsewhere.
    """
    count = _rows_of(group, values, truth)
    if count is None:
        return None
    shape = truth[group.scores].shape
    flat = {name: _flat(truth[name], len(shape)) for name in group.names}
    mine = {name: _flat(values[name], len(shape)) for name in group.names}
    aligned = {name: np.array(flat[name], dtype=mine[name].dtype) for name in group.names}
    missing = np.ones(flat[group.scores].shape, np.bool_)
    items: list[int] = []
    extras: list[int] = []
    disorder = False
    for item in range(len(missing)):
        pairs = _match(
            group,
            {name: array[item] for name, array in mine.items()},
            {name: array[item] for name, array in flat.items()},
        )
        known, got = [i for i, _ in pairs], [j for _, j in pairs]
        missing[item, known] = False
        for name in group.names:
            aligned[name][item, known] = mine[name][item, got]
        rest = sorted(set(range(count)) - set(got))
        items += [item] * len(rest)
        extras += rest
        ordered = _is_sorted(flat[group.scores][item])
        places = [j for _, j in sorted(pairs)]
        disorder |= (
            not _is_sorted(mine[group.scores][item]) if ordered else places != sorted(places)
        )
    where = np.array(items, np.int64)
    extra = {name: mine[name][where, np.array(extras, np.int64)] for name in group.names}
    return (
        {name: aligned[name].reshape(truth[name].shape) for name in group.names},
        Mismatch(missing.reshape(shape), where, extra, disorder),
    )


def _rows_of(group: Group, values: Arrays, truth: Arrays) -> int | None:
    """How many rows each image has; None where the outputs do not agree on it."""
    if any(name not in values for name in group.names):
        return None
    rank = truth[group.scores].ndim
    rows = values[group.scores].shape
    if len(rows) != rank or rank == 0 or rows[:-1] != truth[group.scores].shape[:-1]:
        return None
    for name in group.names:
        shape = values[name].shape
        if shape[:rank] != rows or shape[rank:] != truth[name].shape[rank:]:
            return None
    return int(rows[-1])


def _flat(array: Array, rank: int) -> Array:
    """Images in one axis, then rows."""
    images = int(np.prod(array.shape[: rank - 1], dtype=np.int64))
    return array.reshape((images, *array.shape[rank - 1 :]))


def _match(group: Group, mine: Arrays, truth: Arrays) -> list[tuple[int, int]]:
    """Pairs (row of the truth, own row), best score first, each row once.

    Of the boxes that overlap enough those with the right label go first, then those that overlap
    more, then the nearer score. Rows without area, such as padding, pair with their like in order.
    """
    boxes, others = truth[group.boxes], mine[group.boxes]
    scores, found = _wide(truth[group.scores]), _wide(mine[group.scores])
    free = np.ones(len(others), np.bool_)
    pairs = []
    for row in np.argsort(-scores, kind="stable").tolist():
        overlap = _overlap(boxes[row], others)
        near = np.flatnonzero(free & (overlap >= _SAME_BOX))
        if not near.size:
            continue
        right = np.zeros(near.size)
        if group.labels:
            right = (mine[group.labels][near] == truth[group.labels][row]).astype(float)
        apart = np.abs(found[near] - scores[row])
        best = int(near[np.lexsort((apart, -overlap[near], -right))[0]])
        free[best] = False
        pairs.append((row, best))
    taken = {row for row, _ in pairs}
    flat = [row for row in np.flatnonzero(_area(boxes) <= 0).tolist() if row not in taken]
    like = np.flatnonzero(free & (_area(others) <= 0)).tolist()
    pairs += list(zip(flat, like))  # noqa: B905 - as many as both have
    return pairs


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of one box and each of others."""
    a, b = _wide(box), _wide(others)
    with np.errstate(invalid="ignore", over="ignore"):
        sides = np.minimum(a[2:], b[:, 2:]) - np.maximum(a[:2], b[:, :2])
        inside = np.clip(sides, 0.0, None).prod(-1)
        union = _area(box[None]) + _area(others) - inside
        share = np.divide(inside, union, out=np.zeros_like(inside), where=union > 0)
    return np.asarray(np.nan_to_num(share))


def _area(boxes: Array) -> Array:
    wide = _wide(boxes)
    with np.errstate(invalid="ignore", over="ignore"):
        area = np.clip(wide[:, 2:] - wide[:, :2], 0.0, None).prod(-1)
    return np.asarray(np.nan_to_num(area))


def _is_sorted(scores: Array) -> bool:
    return bool((np.diff(_wide(scores)) <= 0).all())


def _wide(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64)


def loosen(
    group: Group,
    truth: Arrays,
    lanes: Sequence[tuple[Arrays, Mismatch]],
    known: Rows | None = None,
) -> Rows:
    """What the lanes, aligned, allow; added to what is `known` already."""
    parts = [lane for _, lane in lanes]
    reach = dict(known.reach) if known else {}
    loose = np.zeros(truth[group.scores].shape, np.bool_)
    if known is not None:
        loose |= known.loose
    for values, lane in lanes:
        loose |= lane.missing
        for name in (group.boxes, group.scores):
            apart = np.abs(_wide(values[name]) - _wide(truth[name]))
            apart = apart[np.isfinite(apart)]
            reach[name] = max(reach.get(name, 0.0), float(apart.max()) if apart.size else 0.0)
    rows: list[Rows | Mismatch] = [*([known] if known is not None else []), *parts]
    return Rows(
        loose,
        np.concatenate([part.item for part in rows] or [np.zeros(0, np.int64)]),
        {
            name: np.concatenate(
                [_wide(part.extra[name]) for part in rows] or [np.zeros(0)], axis=0
            )
            for name in (group.boxes, group.scores, *filter(None, (group.labels,)))
        },
        reach,
    )


def absorb(
    groups: Sequence[Group],
    truth: Arrays,
    lanes: Sequence[Arrays],
    known: Mapping[str, Rows],
) -> tuple[list[Arrays], dict[str, Rows]]:
    """Lanes with their rows as the truth has them, and by boxes what they allow besides `known`."""
    lanes, rows = list(lanes), dict(known)
    for group in groups:
        found = [align(group, lane, truth) for lane in lanes]
        sound = [pair for pair in found if pair is not None]
        rows[group.boxes] = loosen(group, truth, sound, known.get(group.boxes))
        lanes = [
            lane if pair is None else {**lane, **pair[0]}
            for lane, pair in zip(lanes, found)  # noqa: B905 - one for each
        ]
    return lanes, rows


def explain(group: Group, mismatch: Mismatch, rows: Rows, truth: Arrays, limit: float) -> RowsTold:
    """Whether the rows are wrong, how many are, and how many were excused.

    Args:
        group: the outputs.
        mismatch: of the evaluation being judged.
        rows: what the lanes allow.
        truth: the group's outputs.
        limit: how many times as far from a lane's row as lanes are from the truth a row may be.
    """
    loose = rows.loose | _ties(group, rows, truth[group.scores], limit)
    unknown = [
        index
        for index in range(mismatch.item.size)
        if not _is_known(group, mismatch, index, rows, limit)
    ]
    gone = int(np.count_nonzero(mismatch.missing & ~loose))
    wrong = gone + len(unknown)
    excused = int(np.count_nonzero(mismatch.missing & loose)) + mismatch.item.size - len(unknown)
    if wrong:
        what = (
            f"{gone} of the model's {loose.size} detections are missing and "
            f"{len(unknown)} are others"
        )
        return RowsTold("fail", what, wrong, excused)
    if mismatch.disorder:
        what = "the detections are not in the order that the model gives them"
        return RowsTold("fail", what, 1, excused)
    return RowsTold("pass", "", 0, excused)


def _ties(group: Group, rows: Rows, scores: Array, limit: float) -> NDArray[np.bool_]:
    """Rows of the truth whose score cannot be told from that of a row that a lane has instead."""
    near = limit * rows.reach.get(group.scores, 0.0)
    flat = _flat(_wide(scores), scores.ndim)
    tied = np.zeros(flat.shape, np.bool_)
    for item, score in zip(rows.item, rows.extra[group.scores]):  # noqa: B905 - of one length
        tied[item] |= np.abs(flat[item] - score) <= near
    return tied.reshape(scores.shape)


def _is_known(group: Group, mismatch: Mismatch, index: int, rows: Rows, limit: float) -> bool:
    """Whether a lane has such a row too."""
    like = rows.item == mismatch.item[index]
    for name in (group.boxes, group.scores):
        apart = np.abs(rows.extra[name] - _wide(mismatch.extra[name][index]))
        near = apart <= limit * rows.reach.get(name, 0.0)
        like &= near if near.ndim == 1 else near.all(-1)
    if group.labels:
        like &= rows.extra[group.labels] == mismatch.extra[group.labels][index]
    return bool(like.any())


def match_rows(
    reference: Reference, case: str, outputs: Arrays | None
) -> tuple[Arrays | None, dict[str, RowsTold]]:
    """Outputs with the rows of detections as the truth has them, and what to tell by output."""
    told: dict[str, RowsTold] = {}
    if outputs is None or reference.random:
        return outputs, told
    known = reference.expected[case]
    for group in reference.detections:
        truth = {name: known[name].truth for name in group.names}
        found = align(group, outputs, truth)
        if found is None:
            continue
        aligned, mismatch = found
        rows = reference.rows[case][group.boxes]
        told[group.boxes] = found_out = explain(group, mismatch, rows, truth, reference.rule.peak)
        outputs = {**outputs, **aligned}
        if not found_out.reason and mismatch.missing.size and mismatch.missing.all():
            nothing = replace(
                found_out,
                verdict="unverified",
                reason="every detection changes under rounding noise",
            )
            told.update((name, nothing) for name in group.names)
    return outputs, told
