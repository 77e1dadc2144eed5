"""What goes in and comes out of a package: names, dtypes, ranks, and what no package can hold."""

from __future__ import annotations

import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.targets.coreml.features import features
from isomorph.targets.coreml.options import CoreMlOptions


class Named(torch.nn.Module):
    """Outputs whose names Core ML has to change, and operators called like outputs."""

    def forward(self, x, state, relu):
        return {
            "relu": torch.relu(x),
            "a b": x + 1,
            "x": x * relu,
            "state": state - 1,
        }


def test_names_are_the_users_where_they_are_identifiers(write):
    written = write(Named(), torch.randn(3), torch.randn(2), torch.randn(3))
    described = written.spec().description
    assert [feature.name for feature in described.input] == ["x", "state_", "relu"]
    assert [f.name for f in described.output] == ["relu_out", "a_b", "x_out", "state_out"]
    with written.open() as session:
        assert [spec.name for spec in session.inputs] == ["x", "state", "relu"]
        assert [spec.name for spec in session.outputs] == ["relu_out", "a_b", "x_out", "state_out"]
    assert written.artifact.notes == ("state is called state_ in the package",)
    written.demand_right(torch.randn(3), torch.randn(2), torch.randn(3))


def test_features_never_share_a_name():
    from isomorph.exporter.signature import TensorSpec

    def specs(*names):
        return tuple(TensorSpec(name, "float32", (1,)) for name in names)

    inputs, outputs = features(specs("a", "a b", "a_b"), specs("a", "a_out", "a-out"))
    names = [feature.name for feature in (*inputs, *outputs)]
    assert len(set(names)) == 6


INTEGERS = {
    "int8": [-128, -1, 127],
    "int16": [-32768, 0, 32767],
    "uint8": [0, 200, 255],
    "int32": [-(2**31), 5, 2**31 - 1],
    "int64": [-(2**31), 5, 2**31 - 1],
    "bool": [False, True, True],
}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_and_booleans_pass_as_int32_and_come_back_as_they_were(write, dtype):
    value = torch.tensor(INTEGERS[dtype], dtype=getattr(torch, dtype))
    written = write(lambda x: (x, x.flip(0), x.float()), value)
    described = written.spec().description
    for feature in (*described.input, *described.output[:2]):
        assert feature.type.multiArrayType.dataType == 131104, feature.name  # INT32
    written.demand_right(value)


def test_a_scalar_is_an_array_of_one_element_in_the_file(write):
    value = torch.tensor(3)
    written = write(lambda x, s: (x.sum(), s + 1, s), torch.randn(4), value)
    described = written.spec().description
    assert list(described.input[1].type.multiArrayType.shape) == [1]
    assert "in an array of one element" in described.output[0].shortDescription
    written.demand_right(torch.randn(4), value)


def test_a_narrow_integer_that_core_ml_does_not_wrap_is_never_wrapped_here(write):
    import numpy as np

    written = write(lambda x: x + 10, torch.tensor([1, 250], dtype=torch.uint8))
    written.demand_right(torch.tensor([1, 240], dtype=torch.uint8))
    with written.open() as session, pytest.raises(ConversionError, match="260, beyond uint8"):
        session.run({"args_0": np.array([1, 250], np.uint8)})


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: x, id="input"),
        pytest.param(lambda x: (x, x, x + 1), id="input-twice"),
        pytest.param(lambda x: (x + 1,) * 2, id="twice"),
        pytest.param(lambda x: (x + 1, torch.arange(4)), id="constant"),
        pytest.param(lambda x: torch.arange(4), id="constant-alone"),
    ],
)
def test_every_output_is_its_own(write, model):
    written = write(model, torch.randn(3))
    written.demand_right(torch.randn(3))
    function = written.spec().mlProgram.functions["main"]
    outputs = list(function.block_specializations[function.opset].outputs)
    made = {
        port.name
        for o in function.block_specializations[function.opset].operations
        if o.type != "const"
        for port in o.outputs
    }
    assert len(set(outputs)) == len(outputs)
    assert set(outputs) <= made


def test_inputs_that_nothing_reads_stay(write):
    written = write(lambda x, unused: x + 1, torch.randn(3), torch.randn(2))
    assert len(written.spec().description.input) == 2
    written.demand_right(torch.randn(3), torch.randn(2))


def test_an_input_in_another_memory_format_is_taken(write):
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    write(torch.nn.Conv2d(3, 2, 3), image).demand_right(image, tolerance=1e-5)


def test_an_output_may_have_a_size_that_depends_on_values(write):
    written = write(torch.nonzero, torch.tensor([1.0, 0.0, 2.0]))
    written.demand_right(torch.tensor([0.0, 0.0, 2.0]))
    written.demand_right(torch.tensor([1.0, 3.0, 2.0]))


@pytest.mark.parametrize(
    ("model", "argument", "told"),
    [
        (lambda x: x + 1, torch.ones(2, dtype=torch.float64), "input args_0 is float64"),
        (lambda x: x.double(), torch.ones(2), "output output_0 is float64"),
        (torch.view_as_complex, torch.ones(2, 2), "output output_0 is complex64"),
        (lambda x: x + 1, torch.ones(1, 2, 1, 2, 1, 2), "input args_0 has 6 axes"),
        (lambda x: x[:0], torch.ones(3), "output output_0 is empty"),
    ],
)
def test_what_no_array_can_carry_is_refused_by_name(write, model, argument, told):
    with pytest.raises(ConversionError, match=told):
        write(model, argument)


def test_float16_needs_ios_16(write):
    half = torch.ones(2, dtype=torch.float16)
    with pytest.raises(ConversionError, match=r"float16.*iOS 16"):
        write(lambda x: x + 1, half, options=CoreMlOptions("iOS15"))
    write(lambda x: x + 1, half, options=CoreMlOptions("iOS16")).demand_right(half)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x + 2**40,
        lambda x: (x, torch.tensor([2**40])),
        lambda x: x * torch.tensor([1, -(2**40), 3]),
    ],
)
def test_whole_numbers_beyond_int32_are_refused_where_they_are_written(write, model):
    with pytest.raises(ConversionError, match=r"1099511627776.* beyond int32"):
        write(model, torch.arange(3))


def test_such_a_number_beside_floats_is_a_float(write):
    written = write(lambda x: (x * 2**40, x > 2**40, torch.full_like(x, 2**40)), torch.randn(3))
    written.demand_right(torch.tensor([1.0, 2.0**41, -3.0]))


def test_values_beyond_int32_are_refused_when_it_runs(write):
    import numpy as np

    with (
        write(lambda x: x + 1, torch.arange(3)).open() as session,
        pytest.raises(UsageError, match="args_0 holds 1099511627776"),
    ):
        session.run({"args_0": np.array([0, 2**40, 1])})
