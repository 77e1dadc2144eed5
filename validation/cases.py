"""Which inputs to try: the user's own first, then what usually goes wrong.

A graph and an example go in, a tuple of `Case` comes out: the same for the same
seed, on every machine. Values are drawn per case and input, so adding a case
changes no other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from ..errors import UsageError
from ..exporter.graph import Graph
from ..exporter.signature import Dim, TensorSpec
from .cost import CostModel

__all__ = ["Case", "Fill", "generate"]

Fill = Literal["normal", "zeros", "large", "tiny", "prefix", "suffix"]

# Scales of the study behind the rule (docs/parity.md): they reach saturation and rounding
# to nothing without leaving what a float32 model should survive.
_LARGE = 100.0
_TINY = 1e-3

_SEEDS = 3

# Below this many multiply-adds an evaluation costs next to nothing, and large and tiny values get
# as many seeds as normal ones.
_CHEAP_OPERATIONS = 5e8

# Integer ranges wider than this are drawn in all orders of magnitude.
_WIDE = 2**16

# The largest size of a dynamic dim that is tried costs at most this, whatever the range says.
_BYTES_LIMIT = 2.0**30
_OPERATIONS_LIMIT = 2e10
_OPERATIONS_FACTOR = 8.0


@dataclass(frozen=True)
class Case:
    """Inputs to try.

    `kind` groups the cases whose noise is alike: floors pool within a kind.
    `inputs` maps every input's name to a tensor; a 4-D one may be strided
    (channels_last), and then the eager model gets it so.
    """

    name: str
    kind: str
    inputs: Mapping[str, torch.Tensor]
    description: str


def generate(
    graph: Graph,
    example: Mapping[str, torch.Tensor],
    *,
    synthetic_example: bool,
    data: Sequence[Mapping[str, torch.Tensor]] = (),
    seed: int = 0,
) -> tuple[Case, ...]:
    """Choose the inputs on which an artifact is compared with the eager model.

    Args:
        graph: tells names, dtypes, ranges and dynamic dims.
        example: a tensor for every input; the sizes of dims not being varied.
        synthetic_example: the example was made from a shape, so it serves as
            the first random case; otherwise it is a case of its own.
        data: the user's own samples; they come first.
        seed: changes every random value.

    Raises:
        UsageError: a sample lacks an input, or has another dtype or shape.
    """
    for index, sample in enumerate(data):
        _check_sample(graph, sample, f"data sample {index}")
    if not graph.inputs:
        return (Case("example", "example", {}, "the model takes no input"),)
    draw = _Draw(graph, example, seed)
    cases = [
        Case(f"data-{i}", "data", dict(sample), "the user's data") for i, sample in enumerate(data)
    ]
    if not synthetic_example:
        cases.append(Case("example", "example", dict(example), "the user's example"))
    cases += _normal_cases(graph, draw, example if synthetic_example else None)
    cases += _mask_cases(graph, draw)
    cases += _scaled_cases(graph, draw)
    cases += _size_cases(graph, draw)
    return tuple(cases)


def _check_sample(graph: Graph, sample: Mapping[str, torch.Tensor], what: str) -> None:
    for spec in graph.inputs:
        value = sample.get(spec.name)
        if value is None:
            raise UsageError(
                f"{what} has no value for input {spec.name}",
                hint=f"it must hold {', '.join(s.name for s in graph.inputs)}",
            )
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype != spec.dtype or value.dim() != len(spec.shape):
            raise UsageError(
                f"{what}: input {spec.name} is {dtype} with {value.dim()} axes, the model "
                f"takes {spec.dtype} with {len(spec.shape)}"
            )
        for axis, (size, wanted) in enumerate(zip(value.shape, spec.shape, strict=True)):
            if isinstance(wanted, int) and size != wanted:
                raise UsageError(
                    f"{what}: axis {axis} of input {spec.name} has size {size}, the model was "
                    f"captured with {wanted}",
                    hint=f"let it vary with --dynamic {spec.name}.{axis}=NAME, or give other data",
                )


def _normal_cases(
    graph: Graph, draw: _Draw, example: Mapping[str, torch.Tensor] | None
) -> Iterator[Case]:
    for index in range(_SEEDS):
        name = f"normal-{index}"
        if index == 0 and example is not None:
            yield Case(name, "normal", dict(example), "random values")
            continue
        case = Case(name, "normal", draw(name, "normal"), "random values")
        yield _strided(graph, case) if index == _SEEDS - 1 else case


def _strided(graph: Graph, case: Case) -> Case:
    """The same values with images laid out channels_last, if the model takes any."""
    images = [s.name for s in graph.inputs if s.is_float and len(s.shape) == 4]
    if not images:
        return case
    inputs = dict(case.inputs)
    for name in images:
        inputs[name] = inputs[name].to(memory_format=torch.channels_last)
    return replace(
        case,
        name="channels_last",
        inputs=inputs,
        description="random values, strided channels_last",
    )


def _mask_cases(graph: Graph, draw: _Draw) -> Iterator[Case]:
    """Masks as padding makes them: rows of one value up to a length, the other after it.

    Random masks hardly ever look so, and attention has paths of its own for those that do.
    """
    if not any(_is_mask(spec) for spec in graph.inputs):
        return
    what = "random values; masks hold {} up to a length that differs by row"
    yield Case("mask-prefix", "normal", draw("mask-prefix", "prefix"), what.format("ones"))
    yield Case("mask-suffix", "normal", draw("mask-suffix", "suffix"), what.format("zeros"))


def _is_mask(spec: TensorSpec) -> bool:
    return bool(spec.shape) and (spec.dtype == "bool" or spec.range == (0, 1))


def _padding(shape: tuple[int, ...], fill: Fill, generator: torch.Generator) -> torch.Tensor:
    """Rows with a prefix of ones (of zeros, for a suffix); the first row holds nothing else."""
    length = shape[-1]
    lengths = torch.randint(1, max(length, 2), shape[:-1], generator=generator)
    lengths.view(-1)[:1] = length
    prefix = torch.arange(length) < lengths.unsqueeze(-1)
    return prefix if fill == "prefix" else ~prefix


def _scaled_cases(graph: Graph, draw: _Draw) -> Iterator[Case]:
    seeds = _SEEDS if draw.cost.at(draw.sizes).operations < _CHEAP_OPERATIONS else 1
    yield Case("zeros", "zeros", draw("zeros", "zeros"), "zeros, or the least value allowed")
    large = "values 100 times as large, or the greatest allowed"
    for index in range(seeds):
        yield Case(f"large-{index}", "large", draw(f"large-{index}", "large"), large)
    if not any(spec.is_float for spec in graph.inputs):
        return
    for index in range(seeds):
        yield Case(
            f"tiny-{index}", "tiny", draw(f"tiny-{index}", "tiny"), "values a thousandth as large"
        )


def _size_cases(graph: Graph, draw: _Draw) -> Iterator[Case]:
    smallest, largest = dict(draw.sizes), dict(draw.sizes)
    for dim in graph.dims.values():
        example = draw.sizes[dim.name]
        least = -(-dim.min // dim.step) * dim.step
        top, remark = _largest_size(dim, draw)
        smallest[dim.name], largest[dim.name] = least, top
        middle = dim.step * _odd_between(least // dim.step, top // dim.step, example // dim.step)
        tried = {example}
        for size, what in (
            (least, "smallest size"),
            (middle, "an odd size"),
            (top, f"largest size{remark}"),
        ):
            if size in tried:
                continue
            tried.add(size)
            yield _sized(draw, f"{dim.name}={size}", {**draw.sizes, dim.name: size}, what)
    if len(graph.dims) > 1:
        for name, sizes in (("all-min", smallest), ("all-max", _affordable(largest, draw))):
            if sizes != draw.sizes:
                shown = ", ".join(f"{k}={v}" for k, v in sizes.items())
                yield _sized(draw, name, sizes, f"every size at once: {shown}")


def _sized(draw: _Draw, name: str, sizes: Mapping[str, int], description: str) -> Case:
    return Case(name, "sizes", draw(name, "normal", sizes), description)


def _largest_size(dim: Dim, draw: _Draw) -> tuple[int, str]:
    """The largest size of a dim worth trying, and what to tell where it is not the range's end."""
    example = draw.sizes[dim.name]
    top = dim.max if dim.max is not None else max(2 * example + dim.step, 7 * dim.step)
    top -= top % dim.step
    size = top
    while size > example and not _is_affordable({**draw.sizes, dim.name: size}, draw):
        size = max(_halved(size, dim.step), example)
    if size < top:
        return size, f" that fits in memory and time here; the range goes to {dim.max or 'any'}"
    return size, "" if dim.max is not None else " tried; the range has no end"


def _affordable(sizes: dict[str, int], draw: _Draw) -> dict[str, int]:
    """`sizes`, halved towards the example's until the evaluation is affordable."""
    while sizes != draw.sizes and not _is_affordable(sizes, draw):
        sizes = {
            name: max(_halved(size, draw.graph.dims[name].step), draw.sizes[name])
            for name, size in sizes.items()
        }
    return sizes


def _halved(size: int, step: int) -> int:
    return size // 2 // step * step


def _is_affordable(sizes: Mapping[str, int], draw: _Draw) -> bool:
    cost, usual = draw.cost.at(sizes), draw.cost.at(draw.sizes)
    operations = max(_OPERATIONS_LIMIT, _OPERATIONS_FACTOR * usual.operations)
    return cost.peak_bytes <= _BYTES_LIMIT and cost.operations <= operations


def _odd_between(low: int, high: int, avoid: int) -> int:
    """An odd size strictly inside the range where there is one, not `avoid`."""
    middle = (low + high) // 2 | 1
    for size in (middle, middle - 2, middle + 2):
        if low < size < high and size != avoid:
            return size
    return avoid


class _Draw:
    """Draws the inputs of a case: deterministic by seed, case name and input name."""

    def __init__(self, graph: Graph, example: Mapping[str, torch.Tensor], seed: int) -> None:
        self.graph = graph
        self.example = example
        self.seed = seed
        self.cost = CostModel(graph)
        self.sizes = {
            size.name: example[spec.name].shape[axis]
            for spec in graph.inputs
            for axis, size in enumerate(spec.shape)
            if isinstance(size, Dim)
        }

    def __call__(
        self, case: str, fill: Fill, sizes: Mapping[str, int] | None = None
    ) -> dict[str, torch.Tensor]:
        return {
            spec.name: self._tensor(spec, spec.resolve(sizes or self.sizes), case, fill)
            for spec in self.graph.inputs
        }

    def _tensor(
        self, spec: TensorSpec, shape: tuple[int, ...], case: str, fill: Fill
    ) -> torch.Tensor:
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{self.seed}/{case}/{spec.name}".encode()))
        dtype: torch.dtype = getattr(torch, spec.dtype)
        if fill in ("prefix", "suffix"):
            if _is_mask(spec):
                return _padding(shape, fill, generator).to(dtype)
            fill = "normal"
        if spec.dtype == "bool":
            return _booleans(shape, fill, generator)
        if not dtype.is_floating_point and not dtype.is_complex:
            return self._integers(spec, shape, fill, generator).to(dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        if spec.range is not None and fill == "normal":
            low, high = spec.range
            values = low + (high - low) * torch.rand(shape, generator=generator, dtype=wide)
        else:
            scale = {"zeros": 0.0, "large": _LARGE, "tiny": _TINY}.get(fill, 1.0)
            values = scale * torch.randn(shape, generator=generator, dtype=wide)
        if spec.range is not None and not dtype.is_complex:
            values = values.clamp(*spec.range)
        return values.to(dtype)

    def _integers(
        self, spec: TensorSpec, shape: tuple[int, ...], fill: Fill, generator: torch.Generator
    ) -> torch.Tensor:
        """Within the input's range; without one, within the values that the example shows."""
        if spec.range is not None:
            low, high = int(spec.range[0]), int(spec.range[1])
        else:
            shown = self.example[spec.name].to(torch.int64)
            low, high = (int(shown.min()), int(shown.max())) if shown.numel() else (0, 0)
        if fill == "normal":
            drawn = torch.randint(low, high + 1, shape, generator=generator)
            return _of_all_sizes(drawn, low, high, generator) if high - low > _WIDE else drawn
        return torch.full(shape, high if fill == "large" else low)


def _of_all_sizes(
    drawn: torch.Tensor, low: int, high: int, generator: torch.Generator
) -> torch.Tensor:
    """Evenly drawn integers are nearly all large: half of them become of any size, some extreme."""
    magnitude = torch.rand(drawn.shape, generator=generator, dtype=torch.float64)
    sign = torch.randint(0, 2, drawn.shape, generator=generator) * 2 - 1
    reach = float(max(abs(low), abs(high)))
    small = (sign * reach**magnitude).to(torch.int64).clamp(low, high)
    special = torch.tensor([v for v in (low, high, -1, 0, 1) if low <= v <= high])
    extreme = special[torch.randint(0, len(special), drawn.shape, generator=generator)]
    choice = torch.rand(drawn.shape, generator=generator)
    return torch.where(choice < 0.5, small, torch.where(choice < 0.6, extreme, drawn))


def _booleans(shape: tuple[int, ...], fill: Fill, generator: torch.Generator) -> torch.Tensor:
    if fill in ("normal", "tiny"):
        return torch.rand(shape, generator=generator) < 0.5
    return torch.full(shape, fill == "large", dtype=torch.bool)
