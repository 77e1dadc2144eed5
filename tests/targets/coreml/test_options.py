"""What `--set` chooses, and how dynamic dims stand in the file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.exporter.signature import Dim
from isomorph.targets.coreml.options import TARGETS, CoreMlOptions
from isomorph.targets.coreml.quiet import coremltools
from isomorph.targets.options import build_options

HALVES = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.ReLU())


@pytest.mark.parametrize("name", TARGETS)
def test_deployment_targets_are_those_of_coremltools(name):
    assert getattr(coremltools().target, name).name == f"iOS{TARGETS[name]}"


@pytest.mark.parametrize("name", ["iOS15", "iOS16", "iOS17", "iOS18", "macOS15", "iOS26"])
def test_the_file_names_its_operator_set(write, name):
    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3), options=CoreMlOptions(name))
    opset = {15: 5, 16: 6, 17: 7, 18: 8, 26: 9}[TARGETS[name]]
    assert written.spec().specificationVersion == opset + 1
    assert written.spec().mlProgram.functions["main"].opset == f"CoreML{opset}"
    written.demand_right(torch.randn(2, 3), tolerance=1e-5)


def test_metadata_is_what_the_user_says(write):
    options = build_options(
        CoreMlOptions,
        {
            "author": "A",
            "license": "MIT",
            "description": "D",
            "version": "2",
            "compute_units": "cpu_and_ne",
        },
    )
    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3), options=options, input_0="batch:1..4")
    metadata = written.spec().description.metadata
    assert (metadata.author, metadata.license) == ("A", "MIT")
    assert (metadata.shortDescription, metadata.versionString) == ("D", "2")
    assert metadata.userDefined["isomorph.compute_units"] == "cpu_and_ne"
    assert "coremltools.version" in metadata.userDefined
    assert written.spec().description.input[0].shortDescription == "float32 [batch (1..4), 3]"


@pytest.mark.parametrize(("key", "value"), [("shapes", "all"), ("deployment_target", "iOS14")])
def test_other_values_are_usage_errors(key, value):
    with pytest.raises(UsageError, match=key):
        build_options(CoreMlOptions, {key: value})


def test_a_dim_is_a_range_in_the_file_and_in_the_session(write):
    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3), input_0="batch:1..8")
    array = written.spec().description.input[0].type.multiArrayType
    assert [(r.lowerBound, r.upperBound) for r in array.shapeRange.sizeRanges] == [(1, 8), (3, 3)]
    with written.open() as session:
        assert session.inputs[0].shape == (Dim("batch", 1, 8), 3)
        with pytest.raises(UsageError, match="batch=9"):
            session.run({"input": np.zeros((9, 3), np.float32)})
    for batch in (1, 8):
        written.demand_right(torch.randn(batch, 3), tolerance=1e-5)


class Pair(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def test_inputs_share_a_dim(write):
    written = write(Pair(), torch.randn(2, 3), torch.randn(2, 3), x_0="b:1..8", y_0="b:1..8")
    written.demand_right(torch.randn(5, 3), torch.randn(5, 3))


def test_sizes_can_be_listed(write):
    listed = CoreMlOptions(shapes="enumerated")
    written = write(HALVES, torch.randn(1, 1, 8, 8), options=listed, input_2="height:4..32:4")
    array = written.spec().description.input[0].type.multiArrayType
    assert [list(s.shape)[2] for s in array.enumeratedShapes.shapes] == list(range(4, 33, 4))
    for height in (4, 32):
        written.demand_right(torch.randn(1, 1, height, 8))
    with written.open() as session, pytest.raises(UsageError, match="height=6"):
        session.run({"input": np.zeros((1, 1, 6, 8), np.float32)})


def test_in_a_package_of_another_tool_the_listed_shapes_still_hold(write):
    from isomorph.targets.coreml.storage import write_spec
    from isomorph.targets.coreml.target import CoreMlTarget

    listed = CoreMlOptions(shapes="enumerated")
    written = write(HALVES, torch.randn(1, 1, 8, 8), options=listed, input_2="height:4..32:4")
    spec = written.spec()
    spec.description.metadata.userDefined.clear()
    write_spec(spec, written.artifact.path)
    with CoreMlTarget().open(written.artifact.path) as session:
        assert session.inputs[0].shape == (1, 1, Dim("input_2", 4, 32), 8)
        session.run({"input": np.zeros((1, 1, 12, 8), np.float32)})
        with pytest.raises(UsageError, match="does not list"):
            session.run({"input": np.zeros((1, 1, 6, 8), np.float32)})


def test_several_inputs_list_sizes_from_ios_18_on(write):
    arguments = (torch.randn(2, 3), torch.randn(2, 3))
    dims = {"x_0": "b:1..3", "y_0": "b:1..3"}
    with pytest.raises(ConversionError, match="from iOS 18 on"):
        write(Pair(), *arguments, options=CoreMlOptions(shapes="enumerated"), **dims)
    newer = CoreMlOptions("iOS18", shapes="enumerated")
    written = write(Pair(), *arguments, options=newer, **dims)
    written.demand_right(torch.randn(3, 3), torch.randn(3, 3))


@pytest.mark.parametrize(
    ("dim", "options", "told", "choice"),
    [
        ("h", CoreMlOptions(), "no upper bound", "--dynamic input.0=h:1..64"),
        ("h:4..32:4", CoreMlOptions(), "in steps of 4", "shapes=enumerated"),
        ("h:4..999", CoreMlOptions(shapes="enumerated"), "996 sizes of h", "shapes=range"),
    ],
)
def test_a_dim_that_the_file_cannot_hold_names_the_choices(write, dim, options, told, choice):
    axis = "input_2" if ":" in dim else "input_0"
    with pytest.raises(ConversionError, match=told) as caught:
        write(HALVES, torch.randn(2, 1, 8, 8), options=options, **{axis: dim})
    assert choice in (caught.value.hint or "")
