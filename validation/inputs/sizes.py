"""Which sizes of dynamic dims to try: the ends of their ranges, a prime and an odd one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from ...exporter.signature import Dim
from .draw import Draw

__all__ = ["Sizes", "each_size", "is_affordable", "together"]

Sizes = tuple[str, Mapping[str, int], str]

# The largest size of a dynamic dim that is tried costs at most this, whatever the range says.
_BYTES_LIMIT = 2.0**30
_OPERATIONS_LIMIT = 2e10
_OPERATIONS_FACTOR = 8.0

# Primes are closer together than this up to sizes of many millions.
_SEARCH = 512


def each_size(draw: Draw, which: str) -> Iterator[Sizes]:
    """Each dim at its `least`, a `prime`, its `greatest` or an `odd` size, the others as usual.

    A size that an earlier one of these is too comes once.
    """
    for dim in draw.graph.dims.values():
        for name, size, what in _of(dim, draw):
            if name == which:
                yield f"{dim.name}={size}", {**draw.sizes, dim.name: size}, what


def together(draw: Draw) -> Iterator[Sizes]:
    """All dims at their least, and all at their greatest, where there are several."""
    if len(draw.graph.dims) < 2:
        return
    smallest = {dim.name: _least(dim) for dim in draw.graph.dims.values()}
    largest = {dim.name: _largest_size(dim, draw)[0] for dim in draw.graph.dims.values()}
    for name, sizes in (("all-min", smallest), ("all-max", _affordable(largest, draw))):
        if sizes != draw.sizes:
            shown = ", ".join(f"{k}={v}" for k, v in sizes.items())
            yield name, sizes, f"every size at once: {shown}"


def _of(dim: Dim, draw: Draw) -> Iterator[tuple[str, int, str]]:
    example, least = draw.sizes[dim.name], _least(dim)
    top, remark = _largest_size(dim, draw)
    known = {example}
    steps = least // dim.step, top // dim.step
    prime = _near_middle(*steps, {example // dim.step}, _is_prime)
    odd = _near_middle(*steps, {example // dim.step, prime}, _is_odd_composite)
    times = "" if dim.step == 1 else f" times {dim.step}"
    for which, size, what in (
        ("least", least, "smallest size"),
        ("prime", (prime or odd or 0) * dim.step, f"{'a prime' if prime else 'odd'}{times}"),
        ("greatest", top, f"largest size{remark}"),
        ("odd", (odd or 0) * dim.step, f"odd and no prime{times}"),
    ):
        if size not in known and (size > 0 or which == "least"):
            known.add(size)
            yield which, size, what


def _least(dim: Dim) -> int:
    return -(-dim.min // dim.step) * dim.step


def _largest_size(dim: Dim, draw: Draw) -> tuple[int, str]:
    """The largest size of a dim worth trying, and what to tell where it is not the range's end."""
    example = draw.sizes[dim.name]
    top = dim.max if dim.max is not None else max(2 * example + dim.step, 7 * dim.step)
    top -= top % dim.step
    size = top
    while size > example and not is_affordable({**draw.sizes, dim.name: size}, draw):
        size = max(_halved(size, dim.step), example)
    if size < top:
        return size, f" that fits in memory and time here; the range goes to {dim.max or 'any'}"
    return size, "" if dim.max is not None else " tried; the range has no end"


def _affordable(sizes: dict[str, int], draw: Draw) -> dict[str, int]:
    """`sizes`, halved towards the example's until the evaluation is affordable."""
    while sizes != draw.sizes and not is_affordable(sizes, draw):
        sizes = {
            name: max(_halved(size, draw.graph.dims[name].step), draw.sizes[name])
            for name, size in sizes.items()
        }
    return sizes


def _halved(size: int, step: int) -> int:
    return size // 2 // step * step


def is_affordable(sizes: Mapping[str, int], draw: Draw) -> bool:
    """Whether inputs of these sizes fit into memory and time."""
    cost, usual = draw.cost.at(sizes), draw.cost.at(draw.sizes)
    operations = max(_OPERATIONS_LIMIT, _OPERATIONS_FACTOR * usual.operations)
    return cost.peak_bytes <= _BYTES_LIMIT and cost.operations <= operations


def _near_middle(
    low: int, high: int, avoid: set[int | None], wanted: Callable[[int], bool]
) -> int | None:
    """The wanted number nearest to the middle, strictly inside the range; None: there is none."""
    middle = (low + high) // 2
    reach = min(max(high - low, 0), _SEARCH)
    for distance in range(reach + 1):
        for number in (middle + distance, middle - distance):
            if low < number < high and number not in avoid and wanted(number):
                return number
    return None


def _is_prime(number: int) -> bool:
    """Whether it is an odd prime."""
    return (
        number % 2 == 1
        and number > 1
        and all(number % factor for factor in range(3, math.isqrt(number) + 1, 2))
    )


def _is_odd_composite(number: int) -> bool:
    return number % 2 == 1 and number > 1 and not _is_prime(number)
