"""What half arithmetic explains of a half-precision graph, without using that graph.

The captured program, in float32, with every weight, input and computed value
moved at random by about a rounding to the half type, shows how far half
precision may be from the truth. A half-precision graph that is farther was
lowered wrongly: a lost mask, an overflow, an epsilon that became zero.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from ..exporter.graph import Graph, placeholder_tensors
from .cases import Case
from .compare import Errors
from .expected import CaptureCheck
from .interpreter import Policy
from .verdict import Noise, Ratios, Rule, judge_kind, unit_roundoff

__all__ = ["RoundingCheck", "count_mismatches", "more_policies", "overflow_is_genuine", "policies"]

# Rounding to a half type moves a value by at most half a spacing, by 0.2 of one in the RMS; every
# value is moved by this many spacings. What the lowered graph keeps in float32 is moved as well.
_SPACINGS = 0.5
_KEYS = 2
_MORE_KEYS = 4

# How many times farther than the estimate a sound lowering may be. On the models of
# docs/precision.md sound ones are far below and broken ones far above.
RULE = Rule(peak=2.0, rms=1.5, roundoffs=0.5)

# Indices are looked for where they are unstable with this many times the noise. A share of those
# that stay put may still differ, because random directions do not find every near tie.
_PROBE_TIMES = 8
_DISCRETE_SHARE = 0.01


def policies(dtype: str, *, discrete: bool) -> tuple[Policy, ...]:
    """Evaluations of the captured program that estimate what `dtype` ("float16") does to it."""
    ulps = _ulps(dtype)
    noise = [Policy("rounding", False, ulps, ulps, ulps, key) for key in range(_KEYS)]
    wide = ulps * _PROBE_TIMES
    probes = [
        Policy("rounding probe", False, wide, wide, wide, 100 + key, sign)
        for key in range(_KEYS if discrete else 0)
        for sign in (1, -1)
    ]
    return (*noise, *probes)


def more_policies(dtype: str) -> tuple[Policy, ...]:
    """Further evaluations, for cases that the first ones do not settle."""
    ulps = _ulps(dtype)
    return tuple(
        Policy("rounding", False, ulps, ulps, ulps, key, sign)
        for key in range(_KEYS, _KEYS + _MORE_KEYS)
        for sign in (1, -1)
    )


def _ulps(dtype: str) -> float:
    """How far values are moved, in units of float32's last place."""
    return _SPACINGS * unit_roundoff(dtype) / unit_roundoff("float32")


class RoundingCheck:
    """Collects the lowered graph's errors and judges them."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._floats: dict[tuple[str, str], dict[str, tuple[Case, Noise, Errors]]] = {}
        self._worst = CaptureCheck()

    def add_float(self, output: str, case: Case, estimate: Noise, lowered: Errors) -> None:
        """One output in one case: the estimate's errors and those of the lowered graph."""
        self._floats.setdefault((output, case.kind), {})[case.name] = (case, estimate, lowered)

    def add_estimates(self, output: str, case: Case, errors: Sequence[Errors]) -> None:
        """Errors of further evaluations of the captured program."""
        entries = self._floats[output, case.kind]
        _, noise, lowered = entries[case.name]
        wider = replace(noise, lanes=(*noise.lanes, *errors))
        entries[case.name] = (case, wider, lowered)

    def add_discrete(self, output: str, case: Case, wrong: int, stable: int) -> None:
        """`wrong` of the `stable` elements, those that no probe changes, differ."""
        if wrong > _DISCRETE_SHARE * stable:
            self._fail(f"{wrong} of {stable} elements of {output} differ", output, case)

    def add_overflow(self, output: str, case: Case) -> None:
        """The lowered graph is not finite where the model's values fit into the half type."""
        self._fail(f"{output} is not finite, though no value overflows", output, case)

    def suspects(self) -> list[tuple[str, Case]]:
        """Outputs and cases where the lowered graph is farther off than the estimate allows."""
        return [(output, case) for output, case, ratios in self._judged() if not ratios.within]

    def outcome(self) -> CaptureCheck:
        """Passes unless an output is farther from the truth than half arithmetic explains.

        Large values saturate a model, and a saturated one jumps where two of its values are
        close: random roundings need not find the jump. Products of tiny ones are below the half
        type's normal numbers, where its spacing is no longer relative. The roundings of equal
        values are equal and add up. Suspects among these fail nothing.
        """
        for output, case, ratios in self._judged():
            edge = case.kind in ("large", "tiny") or case.noise in ("constant", "exact")
            if edge and not ratios.within:
                continue
            if not ratios.within:
                self._fail(_far(output, ratios), output, case, ratios.severity)
            elif self._worst.passed and ratios.severity > self._worst.severity:
                self._worst = CaptureCheck(None, None, ratios.severity, case.name, output)
        return self._worst

    def _judged(self) -> Iterator[tuple[str, Case, Ratios]]:
        for (output, _), entries in self._floats.items():
            cases, noise, errors = zip(*entries.values(), strict=True)
            judged = judge_kind(noise, errors, self._dtype, rule=RULE)
            for case, (ratios, _) in zip(cases, judged, strict=True):
                yield output, case, ratios

    def _fail(self, problem: str, output: str, case: Case, severity: float = math.inf) -> None:
        if self._worst.passed or severity > self._worst.severity:
            self._worst = CaptureCheck(
                f"the {self._dtype} program is farther from the model than {self._dtype} "
                f"arithmetic explains: {problem} on case {case.name} ({case.description})",
                "please report this model; --precision fp32 avoids it",
                severity,
                case.name,
                output,
            )


def _far(output: str, ratios: Ratios) -> str:
    return (
        f"{output} is {ratios.peak:.3g} times the estimate off at its worst element "
        f"(limit {RULE.peak:g}), {ratios.rms:.3g} on average (limit {RULE.rms:g})"
    )


def overflow_is_genuine(graph: Graph, inputs: Mapping[str, torch.Tensor], dtype: str) -> bool:
    """Whether float32 arithmetic itself makes values beyond the half type's range.

    A value counts where an operator makes it of values that are all in range: a mask's
    sentinel is a large number that somebody wrote, and no overflow. A product with such a number
    counts if it is not that number itself, as it is where a mask of zeros and ones is scaled.
    """
    search = _RangeSearch(graph, torch.finfo(getattr(torch, dtype)).max)
    return search.run_on(inputs)


_PRODUCTS = {
    torch.ops.aten.mul.Tensor,
    torch.ops.aten.mul.Scalar,
    torch.ops.aten.mul_.Tensor,
    torch.ops.aten.mul_.Scalar,
}


def _one(item: Any) -> bool:
    return not isinstance(item, torch.Tensor) or item.numel() == 1


def _differs(value: torch.Tensor, written: Sequence[float]) -> torch.Tensor:
    """Where `value` is none of the numbers, whatever its sign."""
    magnitude = value.abs()
    other = torch.ones_like(value, dtype=torch.bool)
    for number in written:
        other &= ~torch.isclose(magnitude, torch.full_like(magnitude, number), rtol=1e-6, atol=0)
    return other


class _RangeSearch(torch.fx.Interpreter):
    """Evaluates the captured program and looks for values that leave a range."""

    def __init__(self, graph: Graph, limit: float) -> None:
        super().__init__(graph.program.graph_module)
        self._graph = graph
        self._limit = limit
        self._weights = placeholder_tensors(graph.program)
        self._given: dict[str, torch.Tensor] = {}
        self._found = False

    def run_on(self, inputs: Mapping[str, torch.Tensor]) -> bool:
        self._given = {
            node: inputs[spec.name].contiguous().clone()
            for node, spec in zip(self._graph.input_nodes, self._graph.inputs, strict=True)
        }
        self._found = any(map(self._exceeds, self._given.values()))
        with torch.no_grad():
            self.run()
        return self._found

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "placeholder":
            return self._given.get(n.name, self._weights.get(n.name))
        if n.op == "output" or self._found:
            return None
        if n.op != "call_function":
            return super().run_node(n)
        operands = self.fetch_args_kwargs_from_env(n)
        beyond = [item for item in pytree.tree_leaves(operands) if self._exceeds(item)]
        value = super().run_node(n)
        if not beyond:
            self._found = any(map(self._exceeds, pytree.tree_leaves(value)))
        elif n.target in _PRODUCTS and isinstance(value, torch.Tensor) and all(map(_one, beyond)):
            written = [abs(float(item)) for item in beyond]
            self._found = self._exceeds(value[_differs(value, written)])
        return value

    def _exceeds(self, value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            if not value.is_floating_point() or not value.numel():
                return False
            magnitude = value.abs()
            return bool(((magnitude > self._limit) & magnitude.isfinite()).any())
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            return self._limit < abs(float(value)) < math.inf
        return False


def count_mismatches(
    value: NDArray[Any], truth: NDArray[Any], probes: Sequence[NDArray[Any]]
) -> tuple[int, int, NDArray[np.bool_]]:
    """Elements that differ though no probe changes them, how many are stable, which are not."""
    unstable = np.zeros(truth.shape, np.bool_)
    for probe in probes:
        unstable |= probe != truth
    wrong = int(np.count_nonzero((value != truth) & ~unstable))
    return wrong, int(np.count_nonzero(~unstable)), unstable
