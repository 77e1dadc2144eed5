"""Faults put into the program are caught in what a target makes of it; the right program passes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.signature import parse_dynamic
from isomorph.progress import Silent
from isomorph.targets import registry
from isomorph.validation.checking import make_reference
from isomorph.validation.parity import judge

MODELS = Path(__file__).parents[1] / "models"
small_nets = runpy.run_path(str(MODELS / "small_nets.py"))
program_faults = runpy.run_path(str(MODELS / "program_faults.py"))
faulty, FAULTS = program_faults["faulty"], program_faults["FAULTS"]

SHAPES = {"SmallTransformer": (2, 10, 16), "SmallConvNet": (2, 3, 24, 24)}
# The nets have one output; the conv net reads no size, the transformer pads nothing.
ABSENT = {
    *((net, "swapped_outputs") for net in SHAPES),
    ("SmallTransformer", "flip_padding"),
    ("SmallConvNet", "frozen_axis"),
}


@pytest.fixture(scope="module", params=sorted(SHAPES))
def trial(request) -> tuple[str, Any, Any]:
    """A net's name, its capture and the reference of the right graph."""
    module = small_nets["awake"](small_nets[request.param]())
    example = ExampleCall((torch.randn(SHAPES[request.param]),), {}, True)
    captured = capture(module, example, dynamic=[parse_dynamic("x.0=batch:1..9")])
    return request.param, captured, make_reference(captured, module, [], Silent())


def judged(graph: Any, trial: Any, folder: Path) -> Any:
    _, captured, reference = trial
    target = registry.get("onnx")
    artifact = target.convert(graph, target.options_type(), folder, "net")
    with target.open(artifact.path) as session:
        return judge(captured.graph, reference, session)


def test_the_right_program_passes(trial, tmp_path):
    report = judged(trial[1].graph, trial, tmp_path)
    assert report.verdict == "pass", report.reason


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_in_the_program_is_caught_and_the_graph_untouched(trial, fault, tmp_path):
    name, captured, _ = trial
    before = captured.graph.fingerprint()
    if (name, fault) in ABSENT:
        with pytest.raises(LookupError):
            faulty(captured.graph, fault)
        return
    wrong = faulty(captured.graph, fault)
    assert captured.graph.fingerprint() == before
    report = judged(wrong, trial, tmp_path)
    assert report.verdict == "fail"
    print(f"{name} {fault}: {max(o.peak_ratio or 0 for o in report.outputs):.3g} floors")


def test_swapped_outputs_are_caught(tmp_path):
    class Twins(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"plus": x + 1, "minus": x - 1}

    captured = capture(Twins().eval(), ExampleCall((torch.randn(2, 3),), {}, True))
    reference = make_reference(captured, Twins().eval(), [], Silent())
    wrong = faulty(captured.graph, "swapped_outputs")
    assert judged(wrong, ("Twins", captured, reference), tmp_path).verdict == "fail"
