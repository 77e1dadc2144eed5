"""Evaluates one operator of a captured program under a policy.

Also the higher-order operators that torch.export puts into programs, whose
sub-graphs are evaluated here one lane at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from .decisions import as_ordered, blur_quotients, break_ties, picks
from .jitter import jitter
from .summing import blur_centred, summing_ulps

__all__ = ["AS_CAPTURED", "TRUTH", "WIDER", "Lane", "Policy", "attribute", "evaluate"]

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class Policy:
    """How a lane computes.

    wide: every float dtype is float64 (complex: complex128), dtype arguments
        and autocast regions too. Constants keep the values they were captured with.
    weights, inputs, values: move each weight, input and computed value by this
        many ulp (0: leave it).
    key, sign: choose the directions; -1 reverses all of a key's.
    whole: inputs and computed values that are whole numbers move too. Values that an operator only
        picks from its arguments stay, so that what is exact remains so.
    sums: move what operators subtract a mean from, and the means and sums that they give, by this
        many ulp or by more, see `summing`.

    Any noise orders equal values one way, and with the opposite sign the other way.
    """

    name: str
    wide: bool = False
    weights: float = 0
    inputs: float = 0
    values: float = 0
    key: int = 0
    sign: int = 1
    whole: bool = False
    sums: float = 0


TRUTH = Policy("float64", wide=True)
AS_CAPTURED = Policy("float32")


@dataclass(frozen=True)
class Lane:
    """One evaluation: a policy on the inputs (by name) of the case called `case`."""

    case: str
    policy: Policy
    inputs: Mapping[str, torch.Tensor]


def attribute(module: GraphModule, target: str, policy: Policy) -> Any:
    """A sub-graph or constant that the program holds itself, wide where the policy is."""
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part)
    return _widen(value) if policy.wide and isinstance(value, torch.Tensor) else value


def evaluate(node: Node, args: Any, kwargs: Any, lane: Lane) -> Any:
    """Evaluate a function node under a lane's policy."""
    policy = lane.policy
    target: Any = node.target
    higher = _HIGHER_ORDER.get(getattr(target, "_name", ""))
    if higher is not None:
        return higher(lane, *args, **kwargs)
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise NotImplementedError(f"higher-order operator {target.name()}")
    if policy.wide:
        if target is torch.ops.aten.view.dtype:
            raise NotImplementedError("the operator reinterprets bits")
        args, kwargs = map_aggregate(args, _wider_dtype), map_aggregate(kwargs, _wider_dtype)
        with _default_dtype(torch.float64):
            return map_aggregate(target(*args, **kwargs), _widen)
    name = f"{policy.key}/{lane.case}/{node.name}"
    noisy = bool(policy.weights or policy.inputs or policy.values)
    given = args
    if noisy:
        args = break_ties(target, args, kwargs, name, policy.values, policy.sign)
    if policy.values and policy.whole:
        args = blur_quotients(target, args, kwargs, name, policy.values, policy.sign)
    if noisy:
        args = blur_centred(target, args, name, policy.sums, policy.sign)
    result = target(*args, **kwargs)
    if noisy:
        result = map_aggregate(result, lambda v: as_ordered(target, given, v))
    if policy.sums and (ulps := summing_ulps(target, args, result, policy.sums)):
        return map_aggregate(result, lambda v: _moved(v, name, replace(policy, values=ulps)))
    if policy.values and not _aliases(target) and not (policy.whole and picks(target)):
        return map_aggregate(
            result,
            lambda v: _moved(v, name, policy),
        )
    return result


def _run_module(module: GraphModule, lane: Lane, args: Sequence[Any]) -> Any:
    """Evaluate a sub-graph in one lane."""
    values: dict[Node, Any] = {}
    waiting = iter(args)

    def load(item: Any) -> Any:
        return values[item] if isinstance(item, Node) else item

    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(waiting)
        elif node.op == "get_attr":
            values[node] = attribute(module, str(node.target), lane.policy)
        elif node.op == "output":
            return map_aggregate(node.args[0], load)
        else:
            args_, kwargs_ = map_aggregate(node.args, load), map_aggregate(node.kwargs, load)
            values[node] = evaluate(node, args_, kwargs_, lane)
    return None


def _cond(lane: Lane, predicate: Any, yes: GraphModule, no: GraphModule, operands: Any) -> Any:
    return _run_module(yes if bool(predicate) else no, lane, operands)


def _while_loop(
    lane: Lane, condition: GraphModule, body: GraphModule, carried: Any, extra: Any
) -> Any:
    values = tuple(carried)
    while bool(_run_module(condition, lane, (*values, *extra))):
        values = tuple(_run_module(body, lane, (*values, *extra)))
    return values


def _scan(lane: Lane, combine: GraphModule, init: Any, xs: Any, extra: Any) -> Any:
    carry, rows = list(init), []
    for step in range(xs[0].shape[0]):
        result = _run_module(combine, lane, (*carry, *(x[step] for x in xs), *extra))
        carry = list(result[: len(carry)])
        rows.append(result[len(carry) :])
    return (*carry, *(torch.stack(column) for column in zip(*rows, strict=True)))


def _map(lane: Lane, body: GraphModule, xs: Any, extra: Any) -> Any:
    rows = [
        _run_module(body, lane, (*(x[step] for x in xs), *extra)) for step in range(xs[0].shape[0])
    ]
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def _set_grad(lane: Lane, _enabled: bool, body: GraphModule, *args: Any) -> Any:
    return _run_module(body, lane, args)


def _autocast(
    lane: Lane,
    device: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache: bool | None,
    body: GraphModule,
    *args: Any,
) -> Any:
    """A region of lower precision; autocast passes float64 by, so the truth stays wide."""
    with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache):
        return _run_module(body, lane, args)


# The higher-order operators that torch.export puts into a program, by name.
_HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "wrap_with_set_grad_enabled": _set_grad,
    "wrap_with_autocast": _autocast,
}


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What factories and divisions of integers give when the program names no dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _wider_dtype(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value


def _moved(value: Any, name: str, policy: Policy) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return jitter(value, name, policy.values, policy.sign, whole=policy.whole)
    return value


def _aliases(target: Any) -> bool:
    """Whether an operator may return memory of its arguments (a view, or in place)."""
    schema = getattr(target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)
