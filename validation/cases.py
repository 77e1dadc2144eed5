"""Which inputs to try: the user's own first, then what usually goes wrong.

A graph and an example go in, a tuple of `Case` comes out: the same for the same
seed and budget, on every machine. `inputs/generators.py` lists what makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..exporter.graph import Graph
from ..exporter.samples import demand_fit
from .inputs.budget import check_budget, choose
from .inputs.case import Case
from .inputs.draw import Draw
from .inputs.generators import GENERATORS

__all__ = ["Case", "choose_cases", "generate"]


def generate(
    graph: Graph,
    example: Mapping[str, torch.Tensor],
    *,
    synthetic_example: bool,
    data: Sequence[Mapping[str, torch.Tensor]] = (),
    seed: int = 0,
    budget: float | None = None,
) -> tuple[Case, ...]:
    """The cases of `choose_cases`."""
    found, _ = choose_cases(
        graph,
        example,
        synthetic_example=synthetic_example,
        data=data,
        seed=seed,
        budget=budget,
    )
    return found


def choose_cases(
    graph: Graph,
    example: Mapping[str, torch.Tensor],
    *,
    synthetic_example: bool,
    data: Sequence[Mapping[str, torch.Tensor]] = (),
    seed: int = 0,
    budget: float | None = None,
) -> tuple[tuple[Case, ...], str | None]:
    """Choose the inputs on which an artifact is compared with the eager model.

    Args:
        graph: tells names, dtypes, ranges and dynamic dims.
        example: a tensor for every input; the sizes of dims not being varied.
        synthetic_example: the example was made from a shape, so it serves as
            the first random case; otherwise it is a case of its own.
        data: the user's own samples; they come first.
        seed: changes every random value.
        budget: seconds, estimated, that the cases may take; one of each kind is tried always.

    Returns:
        The cases, and a note on what the budget left out.

    Raises:
        UsageError: a sample lacks an input, or has another dtype or shape; a bad budget.
    """
    seconds = check_budget(budget)
    for index, sample in enumerate(data):
        demand_fit(sample, graph.inputs, f"data sample {index}")
    if not graph.inputs:
        return (Case("example", "example", {}, "the model takes no input", "example"),), None
    given = [
        Case(f"data-{i}", "data", dict(sample), "the user's data", "data")
        for i, sample in enumerate(data)
    ]
    if not synthetic_example:
        given.append(Case("example", "example", dict(example), "the user's example", "example"))
    found, note = choose(
        Draw(graph, example, seed, first=example if synthetic_example else None),
        GENERATORS,
        given,
        seconds,
    )
    return (*given, *found), note
