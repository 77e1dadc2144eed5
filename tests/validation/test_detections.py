"""Detections in another order or number pass where the model itself decides by rounding only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import parity
from isomorph.validation.compare import errors_of, signal_of
from isomorph.validation.detections import Group, absorb, align, find_groups
from isomorph.validation.expected import Expected, Reference
from isomorph.validation.golden import read_golden, write_golden
from isomorph.validation.judging import Finding, judge_runs
from isomorph.validation.verdict import Noise
from torch import nn

Array = np.ndarray
Outputs = dict[str, Array]

GROUP = Group("boxes", "scores", "labels")
NOISE = 1e-7
# Rows of the truth: two whose scores tie, two that are one box under two labels and tie as well,
# one on the threshold that a lane drops, two of padding.
TIED, TWINS, DROPPED, PADDED = (3, 4), (6, 7), 9, (10, 11)


@dataclass(frozen=True)
class Tried:
    name: str = "normal-0"
    kind: str = "normal"
    description: str = "made up"


@dataclass(frozen=True)
class Output:
    name: str
    dtype: str


OUTPUTS = [Output("boxes", "float32"), Output("scores", "float32"), Output("labels", "int64")]


def truth() -> Outputs:
    draw = np.random.default_rng(0)
    corner = 20.0 * np.arange(12)[:, None] + draw.uniform(0, 5, (12, 2))
    boxes = np.concatenate([corner, corner + draw.uniform(8, 12, (12, 2))], 1)
    scores = np.sort(draw.uniform(0.5, 1, 12))[::-1].copy()
    labels = draw.integers(0, 5, 12)
    for first, second in (TIED, TWINS):
        scores[second] = scores[first] * (1 - 1e-12)
    boxes[TWINS[1]], labels[TWINS[1]] = boxes[TWINS[0]], labels[TWINS[0]] + 1
    boxes[list(PADDED)], scores[list(PADDED)], labels[list(PADDED)] = 0.0, 0.0, 0
    return {"boxes": boxes[None], "scores": scores[None], "labels": labels[None]}


def noisy(values: Outputs, seed: int) -> Outputs:
    draw = np.random.default_rng(seed)

    def moved(value: Array) -> Array:
        return value * (1 + NOISE * draw.standard_normal(value.shape))

    return {**values, "boxes": moved(values["boxes"]), "scores": moved(values["scores"])}


def rows(values: Outputs, order: list[int]) -> Outputs:
    return {name: value[:, order] for name, value in values.items()}


def sorted_rows(values: Outputs) -> Outputs:
    return rows(values, np.argsort(-values["scores"][0], kind="stable").tolist())


def extra_row() -> Outputs:
    """What one lane has between the last row and the padding."""
    return {
        "boxes": np.array([[[300.0, 300.0, 310.0, 312.0]]]),
        "scores": np.array([[0.45]]),
        "labels": np.array([[2]]),
    }


def with_extra(values: Outputs, extra: Outputs) -> Outputs:
    joined = {name: np.concatenate([values[name], extra[name]], 1) for name in values}
    return sorted_rows(joined)


def reference() -> Reference:
    base = truth()
    lanes = [noisy(base, 1), sorted_rows(noisy(base, 2)), noisy(base, 3)]
    lanes.append(rows(noisy(base, 4), [i for i in range(12) if i != DROPPED]))
    lanes.append(with_extra(noisy(base, 5), noisy(extra_row(), 6)))
    aligned, loose = absorb([GROUP], base, lanes, {})
    expected: dict[str, Expected] = {}
    for name in ("boxes", "scores"):
        errors = tuple(errors_of(lane[name], base[name]) for lane in aligned)
        noise = Noise(signal_of(base[name]), errors)
        expected[name] = Expected("float32", base[name].shape, base[name], noise)
    labels = base["labels"]
    stable = np.zeros(labels.shape, np.bool_)
    nothing = Noise(signal_of(np.zeros(1)), ())
    expected["labels"] = Expected("int64", labels.shape, labels, nothing, unstable=stable)
    return Reference(
        cases=(), expected={"normal-0": expected}, detections=(GROUP,), rows={"normal-0": loose}
    )


def judge(values: Outputs, known: Reference | None = None) -> dict[str, Finding]:
    narrow = {
        name: value.astype(np.int64 if name == "labels" else np.float32)
        for name, value in values.items()
    }
    findings = judge_runs(
        OUTPUTS, known or reference(), [Tried()], lambda case, reading: (dict(narrow), None)
    )
    return {finding.output: finding for finding in findings}


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.verdict for name, finding in found.items()}


ALL_PASS = {"boxes": "pass", "scores": "pass", "labels": "pass"}


def swap_tied(values: Outputs, pair: tuple[int, int] = TIED) -> Outputs:
    first, second = pair
    order = [*range(first), second, first, *range(second + 1, 12)]
    swapped = rows(values, order)
    swapped["scores"][0, first : second + 1] = values["scores"][0, first]
    return swapped


def swap_twins(values: Outputs) -> Outputs:
    return swap_tied(values, TWINS)


def drop_loose(values: Outputs) -> Outputs:
    return rows(values, [i for i in range(12) if i != DROPPED])


def add_known(values: Outputs) -> Outputs:
    return with_extra(values, noisy(extra_row(), 7))


@pytest.mark.parametrize("change", [sorted_rows, swap_tied, swap_twins, drop_loose, add_known])
def test_what_rounding_decides_passes(change):
    found = judge(change(noisy(truth(), 8)))
    assert verdicts(found) == ALL_PASS
    assert found["boxes"].unstable == (change in (drop_loose, add_known))


def test_of_two_like_boxes_the_one_with_the_right_label_is_taken():
    base = truth()
    first, second = TWINS
    mine = {name: value.copy() for name, value in swap_twins(base).items()}
    mine["boxes"][0, second, 2] += 1e-3  # has the first one's label, and overlaps a little less
    found = align(GROUP, mine, base)
    assert found is not None
    assert (found[0]["labels"] == base["labels"]).all()
    assert found[0]["boxes"][0, first, 2] == mine["boxes"][0, second, 2]


def test_without_matching_the_rows_a_swap_fails():
    known = replace(reference(), detections=())
    assert judge(swap_tied(noisy(truth(), 8)), known)["boxes"].verdict == "fail"


def move_a_box(values: Outputs) -> Outputs:
    values["boxes"][0, 2] += 15
    return values


def nudge_a_box(values: Outputs) -> Outputs:
    values["boxes"][0, 2, 0] += 1e-2
    return values


def lose_a_box(values: Outputs) -> Outputs:
    return rows(values, [i for i in range(12) if i != 5])


def repeat_a_box(values: Outputs) -> Outputs:
    return rows(values, sorted([*range(12), 2]))


def another_label(values: Outputs) -> Outputs:
    values["labels"][0, 2] += 1
    return values


def another_score(values: Outputs) -> Outputs:
    values["scores"][0, 2] *= 1 + 1e-4
    return values


def swap_others(values: Outputs) -> Outputs:
    return rows(values, [1, 0, *range(2, 12)])


def known_box_of_another_score(values: Outputs) -> Outputs:
    extra = extra_row()
    extra["scores"] += 0.01
    return with_extra(values, extra)


def known_box_of_another_label(values: Outputs) -> Outputs:
    extra = extra_row()
    extra["labels"] += 1
    return with_extra(values, extra)


@pytest.mark.parametrize(
    ("fault", "output", "words"),
    [
        (move_a_box, "boxes", "1 of the model's 12 detections are missing and 1 are others"),
        (nudge_a_box, "boxes", "noise floors off"),
        (lose_a_box, "boxes", "1 of the model's 12 detections are missing and 0 are others"),
        (repeat_a_box, "boxes", "0 of the model's 12 detections are missing and 1 are others"),
        (another_label, "labels", "1 of 12 elements differ"),
        (another_score, "scores", "noise floors off"),
        (swap_others, "boxes", "not in the order"),
        (known_box_of_another_score, "boxes", "and 1 are others"),
        (known_box_of_another_label, "boxes", "and 1 are others"),
    ],
)
def test_what_is_wrong_fails(fault, output, words):
    found = judge(fault(noisy(truth(), 8)))
    assert found[output].verdict == "fail"
    assert words in found[output].reason


def test_where_no_detection_can_be_compared_nothing_passes():
    known = reference()
    loose = known.rows["normal-0"]["boxes"]
    every = replace(loose, loose=np.ones_like(loose.loose))
    known = replace(known, rows={"normal-0": {"boxes": every}})
    found = judge(rows(noisy(truth(), 8), []), known)
    assert set(verdicts(found).values()) == {"unverified"}


@pytest.mark.parametrize(
    ("shapes", "count"),
    [
        ({"boxes": (7, 4), "scores": (7,), "labels": (7,)}, 1),
        ({"a_boxes": ("n", 4), "a_scores": ("n",), "b_boxes": (3, 4), "b_scores": (3,)}, 2),
        ({"boxes": (2, 7, 4), "scores": (2, 7)}, 1),
        ({"boxes": (7, 4), "scores": (7, 3), "labels": (7,)}, 0),
        ({"boxes": (7, 4), "scores": (7,), "labels": (8,)}, 0),
        ({"boxes": (7, 5), "scores": (7,)}, 0),
        ({"boxes": (7, 4)}, 0),
        ({"inboxes": (7, 4), "inscores": (7,)}, 0),
    ],
)
def test_only_torchvisions_names_and_shapes_make_a_group(shapes, count):
    floats = [name for name in shapes if not name.endswith("labels")]
    assert len(find_groups(shapes, floats)) == count


class Detector(nn.Module):
    """Boxes, scores and labels of the anchors whose score is above a threshold."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.head = nn.Linear(8, 9)
        for value in self.head.parameters():
            value.data = torch.randn(value.shape, generator=generator)
        self.threshold = 0.0

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)[:, 4].sigmoid()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.head(x)
        scores = found[:, 4].sigmoid()
        corner = 10 * torch.arange(x.shape[0], dtype=torch.float32)[:, None] + found[:, :2]
        boxes = torch.cat([corner, corner + 8 + found[:, 2:4].tanh()], 1)
        keep = (scores >= self.threshold).nonzero()[:, 0]
        return {
            "boxes": boxes[keep],
            "scores": scores[keep],
            "labels": found[keep, 5:].argmax(-1),
        }


class TopDetector(Detector):
    """The twelve best of them, best first: a fixed number, as it runs everywhere."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = super().forward(x)
        scores, best = found["scores"].topk(12)
        return {"boxes": found["boxes"][best], "scores": scores, "labels": found["labels"][best]}


@pytest.fixture(scope="module")
def on_threshold(trial_of):
    """A detector whose threshold is the score of one anchor: whether it is kept is rounding."""
    torch.manual_seed(3)
    x = torch.randn(40, 8)
    module = Detector().eval()
    module.threshold = float(module.scores(x).sort().values[20])
    return trial_of(module, x, only=("normal-0",)), module


def test_a_detector_with_a_score_on_the_threshold_is_captured_and_passes(on_threshold):
    trial, _ = on_threshold
    assert trial.reference.capture.passed
    assert trial.reference.rows["normal-0"]["boxes"].loose.any() or (
        trial.reference.rows["normal-0"]["boxes"].item.size
    )
    assert trial.judge().verdict == "pass"


@pytest.mark.parametrize(("factor", "verdict"), [(1 + 1e-7, "pass"), (1.3, "fail"), (0.7, "fail")])
def test_another_threshold_fails_unless_only_rounding_sees_it(on_threshold, factor, verdict):
    trial, module = on_threshold
    other = Detector().eval()
    other.load_state_dict(module.state_dict())
    other.threshold = module.threshold * factor
    report = trial.judge(other)
    assert report.verdict == verdict, report.reason
    if verdict == "fail":
        assert "detections are missing" in report.reason


def test_from_files_detections_are_judged_the_same(on_threshold, tmp_path):
    trial, module = on_threshold
    write_golden(tmp_path, trial.graph, trial.reference)
    golden = read_golden(tmp_path)
    for factor in (1 + 1e-7, 1.3):
        other = Detector().eval()
        other.load_state_dict(module.state_dict())
        other.threshold = module.threshold * factor

        def run(case, reading, other: Callable = other):
            with torch.no_grad():
                found = other(torch.from_numpy(np.asarray(case.inputs["x"])))
            return {name: value.numpy() for name, value in found.items()}, None

        here = judge_runs(trial.graph.outputs, trial.reference, trial.cases, run)
        there = judge_runs(golden.outputs, golden.reference, golden.cases, run)
        assert [(f.output, f.verdict, f.reason, f.unstable) for f in here] == [
            (f.output, f.verdict, f.reason, f.unstable) for f in there
        ]


def test_a_real_artifact_of_a_detector_passes(trial_of, tmp_path):
    torch.manual_seed(0)
    trial = trial_of(TopDetector().eval(), torch.randn(30, 8))
    assert trial.reference.detections == (GROUP,)
    artifact = OnnxTarget().convert(trial.graph, OnnxOptions(), tmp_path, "detector")
    with OnnxTarget().open(artifact.path) as session:
        report = parity.judge(trial.graph, trial.reference, session)
    assert report.verdict == "pass", report.reason
