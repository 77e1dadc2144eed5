"""Golden vectors: judged from files, an output gets the verdict and figures that it gets here."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch
from isomorph.exporter.precision import lower_precision
from isomorph.progress import Silent
from isomorph.targets.base import Evidence
from isomorph.validation import cases, parity, reference
from isomorph.validation.findings import report_of
from isomorph.validation.golden import write_golden
from isomorph.validation.judging import Problem, judge_runs
from isomorph.validation.lowered import lowered_reference
from isomorph.validation.vectors import (
    ARRAYS,
    SCHEMA,
    TABLE,
    DamagedVectorsError,
    read_golden,
)
from torch import nn


class Net(nn.Module):
    """Floats, integers, one number, and one that overflows on large values."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.body(x) * keep
        return {
            "scores": scores,
            "label": scores.argmax(-1),
            "mean": scores.mean(),
            "size": (x * 5).exp().sum(-1),
        }


@pytest.fixture(scope="module")
def trial(trial_of):
    torch.manual_seed(0)
    return trial_of(Net(), torch.randn(2, 8), torch.ones(2, 6), dynamic=["x.0=b:1..9", "keep.0=b"])


@pytest.fixture
def written(trial, tmp_path):
    write_golden(tmp_path, trial.graph, trial.reference)
    return tmp_path


class Session:
    """A runtime that computes a graph as torch does, and may spoil what comes out."""

    evidence = Evidence("executed", "graph", "0", "cpu")

    def __init__(self, graph, spoil) -> None:
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._graph, self._spoil = graph, spoil

    def run(self, inputs):
        given = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        return self._spoil({n: v.numpy() for n, v in self._graph.run(given).items()})


def judged(folder, session):
    """The report that a device makes: from files, without graph and reference."""
    golden = read_golden(folder)

    def run(case, _):
        try:
            return session.run(case.inputs), None
        except RuntimeError as error:
            return None, Problem("fail", f"the artifact raises RuntimeError: {error}")

    declared = {spec.name: spec.dtype for spec in session.outputs}
    found = judge_runs(golden.outputs, golden.reference, golden.cases, run, declared=declared)
    return report_of(golden.outputs, golden.reference, session.evidence, found)


def times(factor, name="scores"):
    return lambda outputs: {**outputs, name: np.asarray(outputs[name] * np.float32(factor))}


def at_once(**values):
    return lambda outputs: {**outputs, **{name: make(outputs) for name, make in values.items()}}


def nan_in_front(outputs):
    spoilt = outputs["scores"].copy()
    spoilt.reshape(-1)[:1] = np.nan
    return spoilt


def raising(outputs):
    raise RuntimeError("no kernel")


class Unsteady:
    """Gives something else when it is run again."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, outputs):
        self.runs += 1
        return times(1 + self.runs)(outputs)


SPOILS = {
    "right": (lambda: lambda outputs: outputs, "pass"),
    "a little wrong": (lambda: times(1 + 2e-7), "pass"),
    "wrong by some floors": (lambda: times(1 + 3e-6), "fail"),
    "badly wrong": (lambda: times(1.01), "fail"),
    "a number": (lambda: times(1 + 1e-3, "mean"), "fail"),
    "integers": (lambda: at_once(label=lambda o: o["label"] + 1), "fail"),
    "dtype": (lambda: at_once(label=lambda o: o["label"].astype(np.int32)), "fail"),
    "shape": (lambda: at_once(scores=lambda o: o["scores"].T.copy()), "fail"),
    "NaN": (lambda: at_once(scores=nan_in_front), "fail"),
    "missing": (lambda: lambda o: {k: v for k, v in o.items() if k != "mean"}, "fail"),
    "state": (Unsteady, "fail"),
    "error": (lambda: raising, "fail"),
}


@pytest.mark.parametrize("fault", SPOILS)
def test_from_files_an_artifact_is_judged_as_it_is_here(trial, written, fault):
    make, verdict = SPOILS[fault]
    here = parity.judge(trial.graph, trial.reference, Session(trial.graph, make()))
    there = judged(written, Session(trial.graph, make()))
    assert there.to_json() == here.to_json()
    assert here.verdict == verdict


@pytest.mark.parametrize("factor", [1, 1 + 2**-12, 1 + 2**-6])
def test_half_precision_is_judged_by_its_own_rule(trial, tmp_path, factor):
    lowered = lower_precision(trial.graph, "fp16")
    known = lowered_reference(trial.reference, lowered, Silent())
    write_golden(tmp_path, lowered, known)
    here = parity.judge(lowered, known, Session(lowered, times(factor)))
    there = judged(tmp_path, Session(lowered, times(factor)))
    assert there.to_json() == here.to_json()
    assert here.rule.peak == 3


def test_bfloat16_goes_in_and_comes_out_as_float32(trial_of, tmp_path):
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    trial = trial_of(Double(), torch.randn(2, 3).to(torch.bfloat16))
    write_golden(tmp_path, trial.graph, trial.reference)
    golden = read_golden(tmp_path)
    assert golden.inputs[0].dtype == "bfloat16"
    given = golden.cases[0].inputs["x"]
    assert given.dtype == np.float32
    found = judge_runs(
        golden.outputs,
        golden.reference,
        golden.cases,
        lambda case, _: ({"output_0": case.inputs["x"] * 2}, None),
        declared={"output_0": "bfloat16"},
    )
    assert report_of(golden.outputs, golden.reference, None, found).verdict == "pass"


def test_the_same_reference_gives_the_same_bytes(trial, written, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    write_golden(again, trial.graph, trial.reference)
    for name in (TABLE, ARRAYS):
        assert (again / name).read_bytes() == (written / name).read_bytes()
    with zipfile.ZipFile(written / ARRAYS) as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


def test_numpy_reads_the_arrays_and_floats_are_float64(trial, written):
    with np.load(written / ARRAYS, allow_pickle=False) as arrays:
        assert arrays["normal-0/truth/scores"].dtype == np.float64
        assert arrays["normal-0/truth/label"].dtype == np.int64
        assert arrays["normal-0/truth/mean"].shape == ()
        assert np.array_equal(arrays["normal-0/inputs/x"], trial.cases[0].inputs["x"].numpy())


def test_of_too_many_cases_one_of_each_kind_is_kept_and_said_so(trial, tmp_path):
    write_golden(tmp_path, trial.graph, trial.reference, size_limit=0)
    golden = read_golden(tmp_path)
    kinds = [case.kind for case in golden.cases]
    usual = ("normal", "zeros", "large", "tiny", "sizes")
    assert kinds == [k for k in dict.fromkeys(c.kind for c in trial.cases) if k in usual]
    assert golden.left_out == tuple(
        case.name for case in trial.cases if case.name not in {kept.name for kept in golden.cases}
    )
    assert "too large for the package" in golden.reference.notes[-1]


def test_what_is_left_out_still_counts_for_the_floor_of_its_kind(trial, tmp_path):
    """Each output that is not pooled is as many floors away as it is among all cases."""
    write_golden(tmp_path, trial.graph, trial.reference, size_limit=0)
    golden = read_golden(tmp_path)
    session = Session(trial.graph, times(1 + 1e-6))
    everything = judge_runs(
        trial.graph.outputs,
        trial.reference,
        trial.reference.cases,
        lambda case, _: (session.run({n: v.numpy() for n, v in case.inputs.items()}), None),
    )
    here = {(found.case.key, found.output): found.ratios for found in everything}
    kept = judge_runs(
        golden.outputs,
        golden.reference,
        golden.cases,
        lambda case, _: (session.run(case.inputs), None),
    )
    compared = [found for found in kept if found.output == "scores" and found.ratios]
    assert len(compared) == len(golden.cases)
    for found in compared:
        assert found.ratios == here[found.case.key, found.output], found.case
    # Where the model overflows nothing is measured, and nothing counts.
    assert "size" not in golden.reference.besides["large"]


def test_the_users_data_stays_before_all_else(capture_of, tmp_path):
    module = nn.Linear(4, 2).eval()
    captured = capture_of(module, torch.randn(1, 4))
    (name,) = (spec.name for spec in captured.graph.inputs)
    data = [{name: torch.randn(1, 4)} for _ in range(3)]
    chosen = cases.generate(captured.graph, captured.inputs, synthetic_example=True, data=data)
    found = reference.compute(captured.graph, module, chosen)
    # A case takes 4 float32 and 2 float64. One of each kind of usual values, then one of each edge,
    # and then what there is room for.
    rest = ["zeros", "large-0", "tiny-0"]
    edges = ["ones", "negative-0", "halves-0", "ties-0"]
    for room, normal, more in (
        (3, ["normal-0"], []),
        (9, ["normal-0"], edges[:2]),
        (12, ["normal-0", "normal-1"], edges),
    ):
        write_golden(tmp_path, captured.graph, found, size_limit=room * (16 + 16))
        kept = [case.name for case in read_golden(tmp_path).cases]
        assert kept == ["data-0", "data-1", "data-2", *normal, *rest, *more]


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


def edit(path, **changes):
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda folder: cut(folder / ARRAYS), "is not the file"),
        (lambda folder: cut(folder / TABLE), "is damaged"),
        (lambda folder: (folder / ARRAYS).unlink(), "cannot be read"),
        (lambda folder: (folder / TABLE).unlink(), "cannot be read"),
        (lambda folder: (folder / TABLE).write_text("[]"), "is no table"),
        (lambda folder: edit(folder / TABLE, schema=SCHEMA + 1), "is no table"),
        (lambda folder: edit(folder / TABLE, random=["randn"]), "was changed"),
        (lambda folder: (folder / "build.json").write_text("{}"), "is not the file"),
    ],
)
def test_damaged_files_are_told(trial, tmp_path, spoil, cause):
    (tmp_path / "build.json").write_text('{"of": "this package"}')
    write_golden(tmp_path, trial.graph, trial.reference)
    read_golden(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DamagedVectorsError, match=cause):
        read_golden(tmp_path)
