"""A module and an example call become a graph with the user's names and dims."""

import dataclasses

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, UsageError
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.graph import Graph, node_origin
from isomorph.exporter.signature import Dim, parse_dynamic
from torch import nn


def captured(module, *args, dynamic=(), **kwargs):
    call = ExampleCall(args, kwargs, synthetic=False)
    return capture(module.eval(), call, dynamic=[parse_dynamic(text) for text in dynamic])


class Nested(nn.Module):
    def forward(self, x, opts, pair, *, scale=2.0, extra=None):
        y = x * scale + opts["bias"] + pair[0] + pair[1]
        return {"logits": y, "aux": (y.mean(), None, y > 0), "n": 3, "top": y.argmax(-1)}


def nested_call():
    return captured(
        Nested(),
        torch.randn(3, 4),
        {"bias": torch.randn(4), "unused": torch.zeros(1)},
        (torch.randn(4), torch.randn(4)),
        scale=0.5,
        extra=None,
    )


def test_nested_arguments_and_results_keep_their_names():
    graph = nested_call().graph
    assert [spec.name for spec in graph.inputs] == [
        "x",
        "opts_bias",
        "opts_unused",
        "pair_0",
        "pair_1",
    ]
    assert [spec.name for spec in graph.outputs] == ["logits", "aux_0", "aux_2", "top"]
    assert [spec.dtype for spec in graph.outputs] == ["float32", "float32", "bool", "int64"]


def test_graph_and_module_agree_when_called_by_name():
    found = nested_call()
    eager = found.graph.call.call(Nested(), found.inputs)
    traced = found.graph.run(found.inputs)
    assert list(eager) == list(traced)
    for name, value in eager.items():
        assert torch.equal(value, traced[name])


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


class TakesDataclass(nn.Module):
    def forward(self, pair):
        return Pair(pair.left + pair.right, pair.left * 2)


def test_dataclasses_keep_their_fields():
    graph = captured(TakesDataclass(), Pair(torch.ones(2), torch.ones(2))).graph
    assert [spec.name for spec in graph.inputs] == ["pair_left", "pair_right"]
    assert [spec.name for spec in graph.outputs] == ["left", "right"]


class Result(dict):
    """A dict subclass, as model libraries return."""


@dataclasses.dataclass
class Scores:
    logits: torch.Tensor
    extra: torch.Tensor | None = None


class ReturnsOwnTypes(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(logits=x * 2)


@pytest.mark.parametrize("make", [Result, Scores])
def test_results_of_own_types_keep_their_names(make):
    found = captured(ReturnsOwnTypes(make), torch.randn(3))
    assert [spec.name for spec in found.graph.outputs] == ["logits"]
    eager = found.graph.call.call(ReturnsOwnTypes(make), found.inputs)
    assert torch.equal(eager["logits"], found.graph.run(found.inputs)["logits"])


class SameName(nn.Module):
    def forward(self, x):
        return {"x": x * 2, "size": x.shape[0], "both": torch.cat([x, x])}


def test_an_output_never_shares_a_name_with_an_input():
    graph = captured(SameName(), torch.randn(3, 2), dynamic=["x.0=batch:1..8"]).graph
    assert [spec.name for spec in graph.outputs] == ["x_out", "size", "both"]


def test_dims_of_outputs_follow_from_those_of_inputs():
    graph = captured(SameName(), torch.randn(3, 2), dynamic=["x.0=batch:1..8"]).graph
    assert graph.inputs[0].shape == (Dim("batch", 1, 8), 2)
    assert graph.outputs[0].shape == (Dim("batch", 1, 8), 2)
    assert graph.outputs[1].shape == ()
    assert graph.outputs[2].shape == (Dim("2*batch", 2, 16), 2)


def test_an_example_of_batch_one_is_grown_before_tracing():
    found = captured(SameName(), torch.randn(1, 2), dynamic=["x.0=batch:1..8"])
    assert found.inputs["x"].shape == (2, 2)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_time_axis_of_recurrent_layers_stays_dynamic(kind):
    module = Recurrent(kind)
    graph = captured(
        module, torch.randn(2, 7, 4), dynamic=["x.0=batch:1..4", "x.1=time:1..64"]
    ).graph
    longer = torch.randn(3, 11, 4)
    with torch.no_grad():
        assert torch.equal(graph.run({"x": longer})["output_0"], module(longer))


@pytest.mark.parametrize("kernel", [(2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize("kind", [nn.MaxPool2d, nn.AvgPool2d])
def test_ceil_mode_pooling_keeps_a_dynamic_image_size(kind, kernel):
    module = kind(*kernel, ceil_mode=True)
    graph = captured(module, torch.randn(1, 2, 15, 16), dynamic=["input.2=h:5..64"]).graph
    for size in range(5, 20):
        image = torch.randn(1, 2, size, 16)
        assert torch.equal(graph.run({"input": image})["output_0"], module(image))
        dim = graph.outputs[0].shape[2]
        assert isinstance(dim, Dim)


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1)


def test_a_requested_axis_that_comes_out_static_is_an_error():
    with pytest.raises(ConversionError, match=r"batch \(fixed to 2\)"):
        captured(Fixed(), torch.randn(2, 3), dynamic=["x.0=batch:1..8"])


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 3, 3, 2, 1)

    def forward(self, x):
        return x + nn.functional.interpolate(self.down(x), scale_factor=2.0)


def test_a_size_that_must_be_even_is_told_with_the_flag_that_says_so():
    with pytest.raises(ConversionError) as raised:
        captured(Halves(), torch.randn(1, 3, 32, 32), dynamic=["x.2=h:8..64"])
    assert "multiple of 2" in (raised.value.hint or "")
    graph = captured(Halves(), torch.randn(1, 3, 32, 32), dynamic=["x.2=h:8..64:2"]).graph
    assert graph.inputs[0].shape[2] == Dim("h", 8, 64, 2)
    assert graph.outputs[0].shape[2] == Dim("h", 8, 64, 2)


class Adds(nn.Module):
    def forward(self, a, b):
        return a + b


def test_axes_with_one_dim_are_tied():
    graph = captured(
        Adds(), torch.randn(3, 2), torch.randn(3, 2), dynamic=["a.0=n:1..9", "b.0=n"]
    ).graph
    assert graph.inputs[0].shape[0] == graph.inputs[1].shape[0] == Dim("n", 1, 9)


def test_dims_that_the_model_forces_to_be_equal_must_share_a_name():
    with pytest.raises(ConversionError):
        captured(Adds(), torch.randn(3, 2), torch.randn(3, 2), dynamic=["a.0=n", "b.0=m"])


@pytest.mark.parametrize("text", ["y.0=batch", "x.7=batch", "x.0=b:1..1"])
def test_impossible_dynamic_requests_are_usage_errors(text):
    with pytest.raises(UsageError):
        captured(Fixed(), torch.randn(1, 3), dynamic=[text])


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


def test_a_branch_on_a_value_is_an_error_that_names_the_line():
    with pytest.raises(ConversionError, match=r"test_capture\.py:\d+"):
        captured(Branches(), torch.randn(3))


class WritesInput(nn.Module):
    def forward(self, x):
        x.view(3, 4)[:, 1:3].mul_(-2.0)
        return x + 0.5


def test_a_write_to_an_input_becomes_an_output():
    found = captured(WritesInput(), torch.arange(12.0))
    graph = found.graph
    assert [spec.name for spec in graph.outputs] == ["output_0", "x_mutated"]
    assert graph.outputs[1].mutates == "x"
    eager = graph.call.call(WritesInput(), found.inputs)
    traced = graph.run(found.inputs)
    assert torch.equal(eager["x_mutated"], traced["x_mutated"])
    assert not torch.equal(eager["x_mutated"], found.inputs["x"])
    assert any("writes to its input x" in note for note in graph.notes)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


def test_a_write_to_a_buffer_is_refused_and_the_line_named():
    with pytest.raises(ConversionError, match=r"count \(.*test_capture\.py:\d+\)"):
        captured(Counts(), torch.randn(3))


class Noisy(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)


def test_a_random_operator_is_noted():
    assert any("dropout" in note for note in captured(Noisy(), torch.randn(3)).graph.notes)


def test_dropout_in_eval_mode_is_not_random():
    assert not captured(nn.Sequential(nn.Dropout(0.5)), torch.randn(3)).graph.notes


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, ids, kind):
        return self.table(ids.reshape(-1)) + kind


def test_the_range_of_an_index_is_read_from_its_table():
    graph = captured(Embeds(), torch.zeros(3, 1, dtype=torch.int64), torch.tensor(7)).graph
    assert graph.inputs[0].range == (0, 49)
    assert graph.inputs[1].range == (6, 8)


def test_a_shape_that_the_model_rejects_is_a_usage_error():
    with pytest.raises(UsageError, match="rejects"):
        captured(nn.Linear(3, 4), torch.randn(2, 5))


def test_nodes_know_module_and_line():
    graph = captured(Halves(), torch.randn(1, 3, 32, 32)).graph
    node = next(n for n in graph.program.graph.nodes if "conv2d" in str(n.target))
    origin = node_origin(node)
    assert origin.module == "down"
    assert origin.location.partition(":")[0].endswith("test_capture.py")


def test_a_graph_survives_saving(tmp_path):
    found = nested_call()
    found.graph.save(tmp_path / "nested.graph.pt2")
    again = Graph.load(tmp_path / "nested.graph.pt2")
    assert again.inputs == found.graph.inputs
    assert again.outputs == found.graph.outputs
    assert again.provenance == found.graph.provenance
    for name, value in found.graph.run(found.inputs).items():
        assert torch.equal(value, again.run(found.inputs)[name])


class Weighs(torch.nn.Module):
    def forward(self, x, y):
        return x * 2 + y * 0


def test_one_tensor_given_twice_stays_two_inputs():
    same = torch.randn(2, 3)
    graph = isomorph.trace(Weighs(), args=(same, same))
    x, y = torch.ones(2, 3), torch.full((2, 3), 5.0)
    (value,) = graph.run({"x": x, "y": y}).values()
    assert torch.equal(value, x * 2)
