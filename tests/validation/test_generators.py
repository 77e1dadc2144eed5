"""Each generator makes what it says, inside the inputs' ranges, and the docs list them all."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from isomorph.errors import UsageError
from isomorph.validation import cases, golden, reference
from isomorph.validation.inputs.generators import GENERATORS, GIVEN
from isomorph.validation.verdict import EXTREME_KINDS
from torch import nn

DOCS = Path(__file__).parents[2] / "docs" / "parity.md"


class Images(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.table(ids) * mask[..., None]).sum(1) + x.round()


@pytest.fixture(scope="module")
def everything(capture_of):
    """A model with a float, an index and a mask, which rounds."""
    return capture_of(
        Everything(), torch.randn(2, 3), torch.arange(10).reshape(2, 5) % 7, torch.ones(2, 5).bool()
    )


def chosen(captured, **options):
    options = {"synthetic_example": True} | options
    return cases.choose_cases(captured.graph, captured.inputs, **options)


def named(captured, **options):
    return {case.name: case for case in chosen(captured, **options)[0]}


def test_every_case_says_what_made_it(everything):
    sample = dict(everything.inputs)
    found, _ = chosen(everything, synthetic_example=False, data=[sample])
    known = {generator.name: generator for generator in GENERATORS}
    for case in found:
        assert case.generator in known or case.generator in GIVEN, case.name
        if case.generator in known:
            assert case.kind == known[case.generator].kind


def test_the_docs_list_the_generators_and_no_others():
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w-]+) \| (.+) \|$", DOCS.read_text("utf-8"), re.M)
    listed = {name: (kind, text) for name, kind, text in rows}
    expected = {g.name: (g.kind, g.description) for g in GENERATORS}
    expected |= {name: (name, text) for name, text in GIVEN.items()}
    assert listed == expected


def test_edges_are_what_they_are_called(everything):
    known = named(everything)
    assert set(known["ones"].inputs["x"].flatten().tolist()) == {1.0}
    assert known["negative-0"].inputs["x"].max() <= 0
    halves = known["halves-0"].inputs["x"]
    assert torch.equal(halves - halves.floor(), torch.full_like(halves, 0.5))
    assert set(known["ties-0"].inputs["x"].flatten().tolist()) <= {-1.0, 0.0, 1.0}
    assert set(known["ends"].inputs["ids"].flatten().tolist()) == {0, 6}
    assert known["mask-true"].inputs["mask"].all()
    assert not known["mask-false"].inputs["mask"].any()
    row = known["mask-row"].inputs["mask"]
    assert not row[0].any()
    assert row[-1].all()
    for name in ("mask-true", "mask-false", "mask-row"):
        assert known[name].inputs["x"].any(), "the other inputs are as usual"


def test_every_kind_of_edge_is_extreme(everything):
    usual = {"normal", "sizes", *GIVEN}
    assert {g.kind for g in GENERATORS} - usual == set(EXTREME_KINDS)


@pytest.mark.parametrize(
    ("span", "absent"), [((0.25, 0.75), {"negative", "halves"}), ((-3.0, 255.0), set())]
)
def test_edges_stay_in_a_range(capture_of, span, absent):
    captured = capture_of(Images(), torch.rand(2, 3, 8, 8))
    spec = replace(captured.graph.inputs[0], range=span)
    graph = replace(captured.graph, inputs=(spec,))
    found = cases.generate(graph, captured.inputs, synthetic_example=False)
    for case in found:
        if case.kind != "example":
            assert case.inputs["x"].min() >= span[0], case.name
            assert case.inputs["x"].max() <= span[1], case.name
    assert not absent & {case.generator for case in found}


def test_nothing_is_made_of_what_the_model_does_not_take(capture_of):
    found = {c.generator for c in chosen(capture_of(Images(), torch.randn(1, 3, 8, 8)))[0]}
    assert not found & {"mask-prefix", "mask-true", "mask-row", "ends", "least-size"}


def test_a_prime_and_an_odd_size_are_tried(capture_of):
    captured = capture_of(Images(), torch.randn(2, 3, 8, 8), dynamic=["x.0=batch:1..16"])
    sizes = {c.generator: c.inputs["x"].shape[0] for c in chosen(captured)[0] if c.kind == "sizes"}
    assert sizes == {"least-size": 1, "prime-size": 7, "greatest-size": 16, "odd-size": 9}


class Wide(Images):
    """Expensive enough for a budget to matter."""

    def __init__(self) -> None:
        super().__init__(256)


@pytest.fixture(scope="module")
def wide(capture_of):
    return capture_of(Wide(), torch.randn(4, 3, 128, 128), dynamic=["x.0=batch:1..4"])


def test_a_budget_adds_cases_and_removes_none(wide):
    before: set[str] = set()
    for budget in (0, 1, 5, 20, 100):
        found = set(named(wide, budget=budget))
        assert before <= found
        before = found
    assert {"normal-5", "large-4", "ones"} <= before


def test_one_of_each_kind_is_tried_without_any_time(wide, everything):
    found = named(wide, budget=0)
    assert {"normal", "zeros", "large", "tiny", "ones", "negative", "sizes"} == {
        case.kind for case in found.values()
    }
    assert len([n for n in found if n.startswith("large")]) == 1
    # This one rounds, so values at a boundary belong to it.
    assert {g.kind for g in GENERATORS} - {"sizes"} == {
        case.kind for case in named(everything, budget=0).values()
    }


def test_what_a_budget_leaves_out_is_told_with_the_budget_that_has_it(wide):
    found, note = chosen(wide, budget=1)
    assert note is not None
    assert f"{len(found)} cases are tried" in note
    assert "large-1" in note
    enough = int(re.search(r"a budget of (\d+) s has", note)[1])
    names = {case.name for case in chosen(wide, budget=enough)[0]}
    assert {"large-1", "large-2", "tiny-1"} <= names


def test_the_same_budget_gives_the_same_cases(wide):
    first, again = named(wide, budget=2), named(wide, budget=2)
    assert list(first) == list(again)
    assert all(torch.equal(first[n].inputs["x"], again[n].inputs["x"]) for n in first)


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(everything, budget):
    with pytest.raises(UsageError, match="the budget is"):
        chosen(everything, budget=budget)


def test_packages_keep_edges_while_there_is_room(capture_of, tmp_path):
    """Kinds of usual values are kept whatever their size, edges are not."""
    module = Images().eval()
    captured = capture_of(module, torch.randn(1, 3, 16, 16))
    found = reference.compute(captured.graph, module, chosen(captured, budget=0)[0])
    golden.write_golden(tmp_path, captured.graph, found, size_limit=0)
    kept = golden.read_golden(tmp_path)
    assert {case.kind for case in kept.cases} == {"normal", "zeros", "large", "tiny"}
    assert {"ones", "negative-0"} <= set(kept.left_out)
    golden.write_golden(tmp_path, captured.graph, found)
    kept = golden.read_golden(tmp_path)
    assert [(c.name, c.generator) for c in kept.cases] == [
        (c.name, c.generator) for c in found.cases
    ]
