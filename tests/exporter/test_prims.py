"""torch's primitive operators and the ATen operators that stand for them compute the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from isomorph.exporter.nodes import Editor
from isomorph.exporter.prims import _ELEMENTWISE, as_aten
from torch._subclasses import FakeTensorMode

prims = torch.ops.prims
X = torch.tensor([[0.25, 0.5, 0.75], [0.9, 0.1, 0.3]])
Y = torch.tensor([[0.5, 0.25, 0.75], [0.2, 0.6, 0.7]])
N, M = torch.tensor([7, -7, 7, -7, 0]), torch.tensor([2, 2, -2, -2, 3])
_WHOLE = {"bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "gcd", "shift_left"}
_PAIRS = {
    *("add", "atan2", "eq", "fmax", "fmin", "fmod", "ge", "gt", "hypot", "igamma", "igammac"),
    *("le", "lt", "maximum", "minimum", "mul", "ne", "nextafter", "pow", "remainder", "sub"),
    *("zeta", "bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "shift_left"),
}


def rewritten(target: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What a primitive gives, and what takes its place (None where nothing does)."""
    graph = torch.fx.Graph()
    mode = FakeTensorMode()
    feed, given = [], []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            node = graph.placeholder(f"x{len(feed)}")
            node.meta["val"] = mode.from_tensor(arg)
            feed.append(arg)
            given.append(node)
        else:
            given.append(arg)
    node = graph.call_function(target, tuple(given), kwargs)
    wanted = target(*args, **kwargs)
    node.meta["val"] = mode.from_tensor(wanted)
    graph.output(node)
    editor = Editor(graph)
    value = as_aten(editor, node)
    if value is None:
        return wanted, None
    editor.replace(node, value)
    assert not any(str(n.target).startswith("prims") for n in graph.nodes)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return wanted, module(*feed)


@pytest.mark.parametrize("name", sorted(_ELEMENTWISE))
def test_elementwise(name: str) -> None:
    target = getattr(prims, name).default
    args = (N, M.abs()) if name in _WHOLE else (X + 1, Y) if name in ("zeta", "acosh") else (X, Y)
    wanted, found = rewritten(target, *args[: 2 if name in _PAIRS else 1])
    torch.testing.assert_close(found, wanted)


CASES: dict[str, tuple[Any, ...]] = {
    "number_first": (prims.sub.default, 1.0, X),
    "number_second": (prims.mul.default, X, 3.0),
    "division": (prims.div.default, X, Y),
    "whole_division_is_towards_zero": (prims.div.default, N, M),
    "cast": (prims.convert_element_type.default, X, torch.int32),
    "where": (prims.where.default, X > 0.4, X, Y),
    "where_number": (prims.where.default, X > 0.4, X, 0.0),
    "sum": (prims.sum.default, X, [0]),
    "sum_of_int32": (prims.sum.default, torch.ones(2, 3, dtype=torch.int32), [0]),
    "sum_of_all": (prims.sum.default, X, [0, 1]),
    "amax": (prims.amax.default, X, [1]),
    "amin": (prims.amin.default, X, [0]),
    "squeeze": (prims.squeeze.default, X[None, :, None], [0, 2]),
    "transpose": (prims.transpose.default, X, [1, 0]),
    "reshape": (prims.reshape.default, X, [3, 2]),
    "reverse": (prims.rev.default, X, [1]),
}


@pytest.mark.parametrize("name", CASES)
def test_others(name: str) -> None:
    wanted, found = rewritten(*CASES[name])
    torch.testing.assert_close(found, wanted)


def test_broadcast_puts_each_axis_where_it_says() -> None:
    wanted, found = rewritten(prims.broadcast_in_dim.default, X, [4, 2, 5, 3], [1, 3])
    torch.testing.assert_close(found, wanted.clone())


def test_iota() -> None:
    wanted, found = rewritten(
        prims.iota.default,
        *(5,),
        start=3,
        step=-2,
        dtype=torch.int64,
        device=torch.device("cpu"),
        requires_grad=False,
    )
    torch.testing.assert_close(found, wanted)


def test_an_unknown_primitive_stays() -> None:
    assert rewritten(prims.var.default, X, [0], 1)[1] is None
