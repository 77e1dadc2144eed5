"""Half precision is made on a copy: the border stays, what needs float32 keeps it."""

from __future__ import annotations

import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.graph import Graph
from isomorph.exporter.precision import HALF_TYPES, lower_precision
from isomorph.exporter.signature import parse_dynamic
from torch import nn


class Model(nn.Module):
    """A function of the model and its inputs, with a linear layer, a mask and a table."""

    def __init__(self, function, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def graph_of(function, *inputs, dynamic=()) -> Graph:
    module = function if isinstance(function, nn.Module) else Model(function)
    example = ExampleCall(inputs, {}, True)
    requests = [parse_dynamic(text) for text in dynamic]
    return capture(module.eval(), example, dynamic=requests).graph


def calls(graph: Graph, name: str) -> list[torch.fx.Node]:
    found = [n for n in graph.program.graph.nodes if n.op == "call_function"]
    return [n for n in found if name in str(n.target)]


def operand_dtypes(node: torch.fx.Node) -> set[torch.dtype]:
    return {n.meta["val"].dtype for n in node.all_input_nodes}


def values(graph: Graph, *inputs: torch.Tensor) -> torch.Tensor:
    given = {spec.name: value for spec, value in zip(graph.inputs, inputs, strict=True)}
    return graph.run(given)[graph.outputs[0].name]


X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=sorted(HALF_TYPES))
def precision(request) -> str:
    return request.param


def test_weights_and_products_are_half_and_the_border_is_not(precision):
    graph = graph_of(lambda m, x: torch.relu(m.linear(x)), X)
    lowered = lower_precision(graph, precision)
    half = HALF_TYPES[precision]
    assert {t.dtype for n, t in lowered.tensors().items() if "linear" in n} == {half}
    assert operand_dtypes(calls(lowered, "linear")[0]) == {half}
    assert operand_dtypes(calls(lowered, "relu")[0]) == {half}
    assert (lowered.inputs, lowered.outputs) == (graph.inputs, graph.outputs)
    assert values(lowered, X).dtype is torch.float32
    assert lowered.precision == precision


def test_the_users_graph_and_tensors_stay_as_they_are(precision):
    graph = graph_of(lambda m, x: m.norm(m.linear(x)), X)
    before = graph.fingerprint()
    lower_precision(graph, precision)
    assert graph.fingerprint() == before
    assert {t.dtype for t in graph.tensors().values()} == {torch.float32}


def test_fp32_is_the_graph_itself():
    graph = graph_of(lambda m, x: m.linear(x), X)
    assert lower_precision(graph, "fp32") is graph


def test_norms_softmax_and_reductions_compute_in_float32(precision):
    def forward(m, x):
        return m.linear(m.norm(m.linear(x)).softmax(-1)).mean(1)

    lowered = lower_precision(graph_of(forward, X), precision)
    for name in ("layer_norm", "softmax", "mean"):
        assert operand_dtypes(calls(lowered, name)[0]) == {torch.float32}, name


def test_parameters_of_norms_keep_all_their_digits(precision):
    lowered = lower_precision(graph_of(lambda m, x: m.norm(x), X), precision)
    assert lowered.tensors()["norm.weight"].dtype is torch.float32


def test_no_cast_is_made_twice_and_none_is_undone(precision):
    def forward(m, x):
        y = m.norm(x)
        return m.linear(y) + m.linear(y) + m.linear(y).view(2, 4, 8)

    lowered = lower_precision(graph_of(forward, X), precision)
    casts = calls(lowered, "_to_copy")
    assert len(casts) == 2  # the norm's result, the output
    assert not any(c.args[0] in casts for c in casts)


def test_moves_between_float32_operators_are_not_cast(precision):
    def forward(m, x):
        return torch.softmax(m.norm(x).transpose(1, 2), -1)

    assert not calls(lower_precision(graph_of(forward, X), precision), "_to_copy")


def test_a_cast_to_float32_that_the_user_wrote_stays_until_the_next_weight(precision):
    def forward(m, x):
        y = m.linear(x).to(torch.float32)
        return m.linear(y * y)

    lowered = lower_precision(graph_of(forward, X), precision)
    assert operand_dtypes(calls(lowered, "mul")[0]) == {torch.float32}
    assert operand_dtypes(calls(lowered, "linear")[1]) == {HALF_TYPES[precision]}


def test_a_cast_carries_the_place_in_the_code_that_it_is_made_for(precision):
    lowered = lower_precision(graph_of(lambda m, x: m.norm(m.linear(x)), X), precision)
    assert all(c.meta.get("nn_module_stack") for c in calls(lowered, "_to_copy"))


def test_other_dtypes_are_left_alone(precision):
    def forward(m, ids, wide):
        return wide.mul(2) + ids

    ids, wide = torch.arange(4), torch.randn(4, dtype=torch.float64)
    lowered = lower_precision(graph_of(forward, ids, wide), precision)
    assert torch.equal(values(lowered, ids, wide), wide * 2 + ids)


def test_tied_weights_keep_one_storage(precision):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 8)
            self.head = nn.Linear(8, 10, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    lowered = lower_precision(graph_of(Tied(), torch.arange(4)), precision)
    assert len({t.untyped_storage().data_ptr() for t in lowered.tensors().values()}) == 1


def test_writes_in_place_through_views_survive(precision):
    def forward(m, x):
        y = m.linear(x)
        y[:, 0] = y[:, 1] * 2
        return y.relu_()

    graph = graph_of(forward, X)
    got, wanted = values(lower_precision(graph, precision), X), values(graph, X)
    assert torch.allclose(got, wanted, atol=0.05)


def test_dynamic_sizes_stay_dynamic(precision):
    def forward(m, x):
        return nn.functional.scaled_dot_product_attention(m.linear(x), x, x, is_causal=True)

    graph = graph_of(forward, X, dynamic=["inputs_0.0=batch:1..9", "inputs_0.1=time:2..9"])
    other = torch.randn(3, 7, 8)
    got = values(lower_precision(graph, precision), other)
    assert torch.allclose(got, values(graph, other), atol=0.05)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_keep_a_float32_state_and_half_weights(cell, precision):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell(8, 8, batch_first=True)

        def forward(self, x):
            return self.cell(x)[0]

    graph = graph_of(Recurrent(), X)
    lowered = lower_precision(graph, precision)
    assert lowered.tensors()["cell.weight_hh_l0"].dtype is HALF_TYPES[precision]
    assert torch.allclose(values(lowered, X), values(graph, X), atol=0.02)


# Masks and constants that half does not hold


def _scores(m, x):
    return m.linear(x) @ x.transpose(1, 2)


MASKS = {
    "added finfo.min": lambda m, x, keep: (
        _scores(m, x) + (1.0 - keep.float()[:, None]) * torch.finfo(torch.float32).min
    ),
    "two masks added": lambda m, x, keep: (
        _scores(m, x)
        + (1.0 - keep.float()[:, None]) * torch.finfo(torch.float32).min
        + torch.full((4, 4), torch.finfo(torch.float32).min).triu(1)
    ),
    "added -1e9": lambda m, x, keep: _scores(m, x) + (~keep).float()[:, None] * -1e9,
    "filled with -1e9": lambda m, x, keep: _scores(m, x).masked_fill(~keep[:, None], -1e9),
    "filled with finfo.min": lambda m, x, keep: torch.where(
        keep[:, None], _scores(m, x), torch.finfo(torch.float32).min
    ),
}


@pytest.mark.parametrize("mask", sorted(MASKS))
def test_a_mask_does_what_it_does_in_float32_where_all_is_masked_too(mask, precision):
    def forward(m, x, keep):
        return m.linear(MASKS[mask](m, x, keep).softmax(-1) @ x)

    keep = torch.tensor([[True, True, False, True], [False] * 4])
    graph = graph_of(forward, X, keep)
    got, wanted = values(lower_precision(graph, precision), X, keep), values(graph, X, keep)
    assert bool(got.isfinite().all())
    assert torch.allclose(got, wanted, atol=0.05)


def test_minus_infinity_stays_infinite_and_keeps_masking(precision):
    def forward(m, x, keep):
        scores = _scores(m, x).masked_fill(~keep[:, None], float("-inf"))
        return scores.softmax(-1) @ x

    keep = torch.tensor([[True, True, False, True], [True, False, False, False]])
    graph = graph_of(forward, X, keep)
    got, wanted = values(lower_precision(graph, precision), X, keep), values(graph, X, keep)
    assert torch.allclose(got, wanted, atol=0.05)


def test_a_sentinel_that_reaches_a_product_is_clamped_and_infinity_is_not():
    def forward(m, x, keep):
        return x.masked_fill(~keep[..., None], torch.finfo(torch.float32).min) @ torch.eye(8)

    keep = torch.tensor([[True, True, False, True], [True] * 4])
    lowered = lower_precision(graph_of(forward, X, keep), "fp16")
    got = values(lowered, X.masked_fill(X > 2, float("inf")), keep)
    assert float(got[0, 2].min()) == -65504
    assert bool(got.isfinite().all()) is bool((X <= 2).all())


def test_an_epsilon_below_half_still_keeps_zero_from_dividing(precision):
    def forward(m, x):
        y = m.linear(x * 0) - m.linear.bias
        return y / (y.norm(dim=-1, keepdim=True) + 1e-12) + y / y.abs().sum(-1, True).clamp(1e-12)

    assert bool(values(lower_precision(graph_of(forward, X), precision), X).isfinite().all())


def test_squares_that_overflow_float16_are_taken_in_float32():
    def forward(m, x):
        y = m.linear(x)
        return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)

    big = X * 2000
    graph = graph_of(forward, X)
    assert torch.allclose(
        values(lower_precision(graph, "fp16"), big), values(graph, big), atol=0.02
    )


def test_positions_are_exact(precision):
    def forward(m, x):
        angles = torch.arange(3000, 3004).float()[:, None] * torch.full((8,), 0.37)
        return m.linear(x) * torch.sin(angles)

    graph = graph_of(forward, X)
    assert torch.allclose(values(lower_precision(graph, precision), X), values(graph, X), atol=0.03)


# Weights that half does not hold


def test_a_weight_beyond_float16_is_refused_by_name_and_fits_bfloat16():
    model = Model(lambda m, x: m.linear(x))
    with torch.no_grad():
        model.linear.weight[0, 0] = 1e6
    graph = graph_of(model, X)
    with pytest.raises(ConversionError, match=r"linear\.weight holds 1e\+06.*float16") as caught:
        lower_precision(graph, "fp16")
    assert "bf16" in (caught.value.hint or "")
    lower_precision(graph, "bf16")


def test_a_weight_that_vanishes_in_float16_is_refused_by_name():
    model = Model(lambda m, x: m.linear(x))
    with torch.no_grad():
        model.linear.weight.mul_(1e-9)
    with pytest.raises(ConversionError, match=r"all of linear\.weight"):
        lower_precision(graph_of(model, X), "fp16")


def test_a_weight_of_one_element_is_converted_without_a_warning(recwarn):
    model = Model(lambda m, x: m.linear(x) * m.scale)
    model.scale = torch.nn.Parameter(torch.tensor([1.5]))
    lower_precision(graph_of(model, X), "fp16")
    assert not [w for w in recwarn if "requires_grad" in str(w.message)]
