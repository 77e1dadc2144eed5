"""non_maximum_suppression, as far as it is documented: one class, no two equal scores."""

from __future__ import annotations

import torch

from .call import Call, Operator, Unknown

__all__ = ["OPERATORS"]

_CLOSE = 1e-6
"""An overlap this close to the threshold is decided by the rounding of its division."""


def _non_maximum_suppression(call: Call) -> tuple[torch.Tensor | Unknown, ...]:
    boxes, scores = call.tensor("boxes"), call.tensor("scores")
    if boxes.dim() != 3 or scores.dim() != 3 or boxes.dtype != scores.dtype:
        raise call.damaged("boxes and scores are not of rank 3 and one dtype")
    last = call.opset >= 7  # from iOS 17 the boxes lie along the last axis
    if last:
        boxes, scores = boxes.mT, scores.mT
    call.flag("per_class_suppression", False)  # makes no difference to one class
    if boxes.shape[:2] != scores.shape[:2] or boxes.shape[2] != 4:
        raise call.damaged(f"boxes of {list(boxes.shape)}, scores of {list(scores.shape)}")
    if scores.shape[2] != 1:
        call.refuse("which of several scores of a box decides")
    most, overlap = call.integer("max_boxes"), call.number("iou_threshold")
    if most < 1:
        raise call.damaged(f"max_boxes is {most}")
    least = -float("inf") if last else call.number("score_threshold")
    chosen = [
        _chosen(call, box.float(), score[:, 0].float(), overlap, least, most)
        for box, score in zip(boxes, scores, strict=True)
    ]
    counts = () if last else (torch.tensor([len(one) for one in chosen], dtype=torch.int32),)
    if any(len(one) < most for one in chosen):
        padded = call.unknown(f"what fills the outputs up to max_boxes={most}")
        return (padded, padded, padded, *counts)
    rows = torch.tensor(chosen, dtype=torch.int64).reshape(len(chosen), most)
    places = rows[:, :, None]
    kept = (boxes.gather(1, places.expand(-1, -1, 4)), scores.gather(1, places))
    if last:
        kept = (kept[0].mT, kept[1].mT)
    return (*kept, rows.to(torch.int32), *counts)


def _chosen(
    call: Call, boxes: torch.Tensor, scores: torch.Tensor, overlap: float, least: float, most: int
) -> list[int]:
    """Indices of the boxes of one batch element that survive, best first."""
    if bool(boxes.isnan().any() or scores.isnan().any()):
        call.refuse("NaN among boxes or scores")
    if bool((boxes[:, 2:] <= 0).any()):
        call.refuse("a box without an area")
    alive = scores >= least
    found: list[int] = []
    while len(found) < most and bool(alive.any()):
        best = scores[alive].max()
        candidates = torch.nonzero(alive & (scores == best)).reshape(-1).tolist()
        if len(candidates) > 1:
            call.refuse("which of equal scores goes first")
        found += candidates
        alive[candidates[0]] = False
        shared = _overlaps(boxes[candidates[0]], boxes)
        if bool((alive & ((shared - overlap).abs() <= _CLOSE)).any()):
            call.refuse(f"an overlap of {overlap}, the threshold itself")
        alive &= shared <= overlap
    return found


def _overlaps(box: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Intersection over union of a box (center x and y, width, height) with each of `boxes`."""
    low = torch.maximum(box[:2] - box[2:] / 2, boxes[:, :2] - boxes[:, 2:] / 2)
    high = torch.minimum(box[:2] + box[2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2)
    shared = (high - low).clamp(min=0).prod(1)
    return shared / (box[2:].prod() + boxes[:, 2:].prod(1) - shared)


OPERATORS: dict[str, Operator] = {"non_maximum_suppression": _non_maximum_suppression}
