"""The lockstep interpreter: float64 throughout, higher-order operators, nothing written to."""

from __future__ import annotations

import pytest
import torch
from isomorph.validation import interpreter
from isomorph.validation.interpreter import AS_CAPTURED, TRUTH, Lane, LaneError, Lockstep, Policy
from torch._higher_order_ops import map as map_operator
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional

WEIGHTS = Policy("weights", weights=1)


@pytest.fixture
def run(capture_of, module_of):
    """Evaluates a function's program under policies; `(graph, module, outputs per policy)`."""

    def make(function, *args, policies=(AS_CAPTURED, TRUTH), inputs=None):
        module = module_of(function)
        graph = capture_of(module, *args).graph
        named = inputs or {s.name: a for s, a in zip(graph.inputs, args, strict=True)}
        lanes = [Lane("case", policy, named) for policy in policies]
        return graph, module, Lockstep(graph).run(lanes)

    return make


def upcast(m, x):
    return (x.to(torch.float16).to(torch.float32) * m.weight).double().to(torch.float32)


def factories(m, x):
    out = torch.zeros(4, 3)
    out[:, 0] = x[:, 0]
    return out + torch.arange(3) / 7 + torch.full((3,), 0.1) + torch.ones_like(x).cumsum(-1)


def autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = functional.linear(x, x)
    return y.float() + 1


def no_grad(m, x):
    y = x * m.weight
    with torch.no_grad():
        return y + 1


def branch(m, x):
    return torch.cond(x.sum() > 0, lambda x: x * m.weight, lambda x: x - m.weight, (x,))


def loop(m, x):
    return while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * m.weight), (torch.tensor(0), x.clone())
    )[1]


def mapped(m, x):
    return map_operator(lambda row, w: row * w, x, m.weight)


def softmax_with_dtype(m, x):
    return functional.softmax(x, -1, dtype=torch.float32) @ m.weight


@pytest.mark.parametrize(
    "function",
    [upcast, factories, autocast, no_grad, branch, loop, mapped, softmax_with_dtype],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("sign", [1, -1])
def test_float64_is_kept_from_input_to_output(run, function, sign):
    x = sign * torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) + sign * 0.1
    _, module, (plain, truth) = run(function, torch.ones(4, 3), inputs={"inputs_0": x})
    with torch.no_grad():
        assert torch.equal(plain["output_0"], module(x))
    exact = truth["output_0"]
    assert exact.dtype is torch.float64
    # A result that went through float32 or less anywhere has nothing below its 24 bits.
    assert bool((exact.float().double() != exact).any())
    torch.testing.assert_close(exact.float(), plain["output_0"], rtol=1e-2, atol=1e-2)


def test_factories_and_quotients_of_integers_without_a_dtype_are_float64(run):
    _, _, (_, truth) = run(lambda m, x: 0 * x + torch.arange(3) / 7 + torch.zeros(3), torch.ones(3))
    expected = torch.arange(3, dtype=torch.float64) / 7
    assert torch.equal(truth["output_0"], expected)


def test_scan_is_evaluated_in_steps(capture_of):
    class Running(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return scan(lambda c, row: (c + row, c * row), torch.zeros(3), x)

    graph = capture_of(Running(), torch.randn(4, 3)).graph
    x = torch.randn(4, 3)
    plain, truth = Lockstep(graph).run([Lane("c", p, {"x": x}) for p in (AS_CAPTURED, TRUTH)])
    torch.testing.assert_close(plain["output_0"], x.sum(0))
    assert truth["output_1"].shape == (4, 3)
    assert truth["output_1"].dtype is torch.float64


def test_lanes_of_different_cases_do_not_mix(capture_of, module_of):
    graph = capture_of(module_of(lambda m, x: (x * m.weight).relu_()), torch.ones(2, 3)).graph
    inputs = [{"inputs_0": torch.randn(2, 3)} for _ in range(3)]
    lanes = [Lane(str(i), AS_CAPTURED, value) for i, value in enumerate(inputs)]
    together = Lockstep(graph).run(lanes)
    for lane, result in zip(lanes, together, strict=True):
        assert torch.equal(result["output_0"], Lockstep(graph).run([lane])[0]["output_0"])


def test_constants_keep_the_value_that_float32_gave_them(run):
    lowest = torch.finfo(torch.float32).min
    _, _, (_, truth) = run(lambda m, x: x.masked_fill(x > 0, lowest), torch.ones(2, 3))
    assert truth["output_0"].min().item() == lowest


def test_jitter_moves_weights_by_one_ulp_and_inputs_not(run):
    policies = (AS_CAPTURED, WEIGHTS, Policy("inputs", inputs=1))
    _, _, (plain, weights, inputs) = run(
        lambda m, x: (m.weight + 0 * x, x * 1), torch.full((3,), 1.5), policies=policies
    )
    steps = weights["output_0"].view(torch.int32) - plain["output_0"].view(torch.int32)
    assert set(steps.abs().tolist()) == {1}
    assert torch.equal(weights["output_1"], plain["output_1"])
    assert torch.equal(inputs["output_0"], plain["output_0"])
    assert not torch.equal(inputs["output_1"], plain["output_1"])


def test_weights_inputs_and_the_default_dtype_are_left_alone(run):
    x = torch.randn(4, 3)
    kept = x.clone()
    policies = (AS_CAPTURED, TRUTH, WEIGHTS, Policy("probe", False, 32, 32, 32))
    _, module, _ = run(
        lambda m, x: (x.clone().relu_() * m.weight).add_(m.mask), x, policies=policies
    )
    assert torch.equal(x, kept)
    assert torch.equal(module.weight, type(module)(None).weight)
    assert torch.get_default_dtype() is torch.float32


def test_an_operator_that_would_write_to_a_weight_gets_a_copy(capture_of, module_of):
    module = module_of(lambda m, x: (x + m.weight).relu())
    graph = capture_of(module, torch.randn(3)).graph
    weight = module.weight.detach().clone()
    program = graph.program.graph_module.graph
    (add,) = program.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    p_weight, x = add.args[1], add.args[0]
    with program.inserting_before(add):
        write = program.call_function(torch.ops.aten.add_.Tensor, (p_weight, x))
    add.args = (write, x)
    Lockstep(graph).run([Lane("c", AS_CAPTURED, {"inputs_0": torch.ones(3)})])
    assert torch.equal(module.weight, weight)


def test_a_lane_that_stops_says_at_which_operator_and_spares_the_others(run):
    _, _, (plain, truth) = run(
        lambda m, x: (x.view(torch.int32) + 1).view(torch.float32), torch.ones(3)
    )
    assert isinstance(truth, LaneError)
    assert truth.node.target is torch.ops.aten.view.dtype
    assert "output_0" in plain


def test_each_weight_is_widened_once_for_all_lanes_and_then_dropped(
    capture_of, module_of, monkeypatch
):
    made = []
    whole = interpreter.jitter

    def counted(tensor, *args):
        made.append(tensor)
        return whole(tensor, *args)

    monkeypatch.setattr(interpreter, "jitter", counted)
    graph = capture_of(module_of(lambda m, x: (x * m.weight) @ m.weight), torch.ones(2, 3)).graph
    lanes = [Lane(str(i), WEIGHTS, {"inputs_0": torch.randn(2, 3)}) for i in range(5)]
    Lockstep(graph).run(lanes)
    assert len(made) == 1
