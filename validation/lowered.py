"""The noise floor of a graph in half precision, against the truth of the model.

The truth stays that of the user's model. The lanes become evaluations of the
half-precision graph: as it is, with weights moved by one unit in the last place
of the half type, with inputs moved by as much. Since artifact and floor then
come from the same rewritten graph, a fault of the rewriting would be in both
and pass; `_check_lowering` looks for one with an estimate that does not use that
graph: the captured program with every weight, input and value moved at random by
about a rounding to half. docs/precision.md tells how its limits were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exporter.graph import Graph
from ..exporter.signature import TensorSpec
from ..progress import Progress
from .arrays import to_numpy
from .cases import Case
from .compare import errors_of, nonfinite_codes
from .expected import Expected, Reference
from .interpreter import AS_CAPTURED, Lane, LaneError, Lockstep, Policy
from .verdict import Noise, unit_roundoff

__all__ = ["HALF_DTYPES", "lowered_reference"]

Arrays = Mapping[str, NDArray[Any]]

HALF_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def lowered_reference(reference: Reference, graph: Graph, progress: Progress) -> Reference:
    """`reference` with the noise floor of the half-precision `graph`.

    Args:
        reference: of the captured graph.
        graph: from `exporter.precision.lower_precision` on that graph.
        progress: gets one step per case.
    """
    dtype = HALF_DTYPES[graph.precision]
    if reference.random:
        return replace(reference, dtype=dtype)
    work = _Work(graph, dtype)
    expected = {}
    with progress.stage("reference in half precision", len(reference.cases)) as step:
        for case in reference.cases:
            expected[case.name] = work.expect(case, reference.expected[case.name])
            step.advance(1)
    return replace(reference, expected=expected, dtype=dtype)


class _Work:
    def __init__(self, graph: Graph, dtype: str) -> None:
        self._graph = graph
        self._lockstep = Lockstep(graph)
        # Inputs at the border are float32 as a rule: one unit of the half type is many of theirs.
        self._input_ulps = unit_roundoff(dtype) / unit_roundoff("float32")

    def _policies(self, discrete: bool) -> tuple[Policy, ...]:
        noise = (
            AS_CAPTURED,
            Policy("weights", weights=1),
            Policy("inputs", inputs=self._input_ulps),
        )
        probes = tuple(
            Policy("probe", False, 1, self._input_ulps, 1, 100 + key, sign)
            for key in range(2 if discrete else 0)
            for sign in (1, -1)
        )
        return (*noise, *probes)

    def expect(self, case: Case, known: Mapping[str, Expected]) -> dict[str, Expected]:
        """What must come out of one case, its noise that of the half-precision graph."""
        policies = self._policies(any(e.is_discrete for e in known.values()))
        lanes = [Lane(case.name, policy, case.inputs) for policy in policies]
        results: list[Arrays] = []
        for result in self._lockstep.run(lanes):
            if isinstance(result, LaneError):
                raise result
            results.append({name: to_numpy(value) for name, value in result.items()})
        return {name: _expect(entry, [r[name] for r in results]) for name, entry in known.items()}


def _expect(known: Expected, lanes: Sequence[NDArray[Any]]) -> Expected:
    if known.unstable is not None:
        unstable = np.zeros(known.shape, np.bool_)
        for value in lanes:
            unstable |= value != known.truth
        return replace(known, unstable=unstable)
    errors = tuple(errors_of(value, known.truth) for value in lanes)
    codes = known.codes if known.codes is not None else np.zeros(known.shape, np.int8)
    overflows = any((nonfinite_codes(value) != codes).any() for value in lanes)
    return replace(known, noise=Noise(known.noise.signal, errors), overflows=overflows)
