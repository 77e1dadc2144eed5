"""The generators: each a name, a sentence, and the cases that it makes for a graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from ...exporter.signature import TensorSpec
from ..decisions import decides
from .case import Case, Noise
from .draw import Draw, is_mask
from .sizes import each_size, together
from .values import Fill, halves_within

__all__ = ["GENERATORS", "GIVEN", "Generator"]

_ALL = 1 << 30

# What the user gave comes from no generator; a report cites it by these names.
GIVEN = {
    "data": "the samples given with `--data`",
    "example": "the example input, where it holds the user's own values",
}


@dataclass(frozen=True)
class Generator:
    """Makes cases, the most telling first.

    name: cited in reports.
    kind: whose noise its cases share.
    description: one sentence for the docs.
    cases: may go on without end; nothing where the graph has no such input.
    always: how many cases are tried whatever the budget.
    usual: how many there are at most in the default budget; a greater one has more in proportion.
    masks: it may mask whole rows.
    """

    name: str
    kind: str
    description: str
    cases: Callable[[Draw], Iterator[Case]]
    always: Callable[[Draw], int] = lambda draw: 1
    usual: int = 1
    masks: bool = False

    def __call__(self, draw: Draw) -> Iterator[Case]:
        masked = self.masks and bool(draw.masks())
        return (replace(c, generator=self.name, masked=masked) for c in self.cases(draw))


def _drawn(
    name: str, kind: str, fill: Fill, what: str, noise: Noise = "usual"
) -> Callable[[Draw], Iterator[Case]]:
    """Cases NAME-0, NAME-1, ... that differ by their random values."""

    def cases(draw: Draw) -> Iterator[Case]:
        for index in itertools.count():
            case = f"{name}-{index}"
            yield Case(case, kind, draw(case, fill), what, noise=noise)

    return cases


def _one(
    name: str, kind: str, fill: Fill, what: str, noise: Noise = "usual"
) -> Callable[[Draw], Iterator[Case]]:
    """A single case of that name."""

    def cases(draw: Draw) -> Iterator[Case]:
        yield Case(name, kind, draw(name, fill), what, noise=noise)

    return cases


def _if(
    applies: Callable[[Draw], bool], cases: Callable[[Draw], Iterator[Case]]
) -> Callable[[Draw], Iterator[Case]]:
    """`cases` for graphs that have what they vary."""
    return lambda draw: cases(draw) if applies(draw) else iter(())


def _sized(which: str) -> Callable[[Draw], Iterator[Case]]:
    def cases(draw: Draw) -> Iterator[Case]:
        for name, sizes, what in together(draw) if which == "all" else each_size(draw, which):
            yield Case(name, "sizes", draw(name, "normal", sizes), what)

    return cases


def _channels_last(draw: Draw) -> Iterator[Case]:
    """The values of `normal-2` with images laid out channels_last, if the model takes any."""
    images = _images(draw)
    if not images:
        return
    inputs = draw("normal-2", "normal")
    for spec in images:
        inputs[spec.name] = inputs[spec.name].to(memory_format=torch.channels_last)
    yield Case("channels_last", "normal", inputs, "random values, strided channels_last")


def _normal(draw: Draw) -> Iterator[Case]:
    """Two or three seeds; `channels_last` has the values of the third where there are images."""
    for case in _drawn("normal", "normal", "normal", "random values")(draw):
        if case.name != "normal-2" or not _images(draw):
            yield case


def _images(draw: Draw) -> list[TensorSpec]:
    return [spec for spec in draw.reals() if len(spec.shape) == 4]


def _has_floats(draw: Draw) -> bool:
    return bool(draw.reals())


def _may_be_negative(draw: Draw) -> bool:
    return any(spec.range is None or spec.range[0] < 0 for spec in draw.reals())


def _may_be_halves(draw: Draw) -> bool:
    return any(halves_within(spec.range) is not None for spec in draw.reals())


def _has_padding(draw: Draw) -> bool:
    return any(is_mask(spec) for spec in draw.graph.inputs)


def _has_masks(draw: Draw) -> bool:
    return bool(draw.masks())


def _has_mask_rows(draw: Draw) -> bool:
    return any(torch.Size(draw.shape(spec)[:-1]).numel() > 1 for spec in draw.masks())


def _has_indices(draw: Draw) -> bool:
    return bool(draw.indices())


def _once_if_it_decides(draw: Draw) -> int:
    """Where nothing is rounded, compared or ordered, values at a boundary show nothing special."""
    return int(decides(draw.graph.program.graph_module))


_PADDED = "random values; masks hold {} up to a length that differs by row"
_MASKED = "random values; masks hold {}"

GENERATORS = (
    Generator(
        "normal",
        "normal",
        "normally distributed values, or evenly distributed ones inside a given range",
        _normal,
        always=lambda draw: 2 if _images(draw) else 3,
        usual=3,
    ),
    Generator(
        "channels_last",
        "normal",
        "such values with images strided `channels_last`",
        _channels_last,
    ),
    Generator(
        "mask-prefix",
        "normal",
        "rows of ones, then zeros, as padding makes them, in booleans and what is 0 or 1",
        _if(_has_padding, _one("mask-prefix", "normal", "prefix", _PADDED.format("ones"))),
        masks=True,
    ),
    Generator(
        "mask-suffix",
        "normal",
        "the reverse: zeros, then ones",
        _if(_has_padding, _one("mask-suffix", "normal", "suffix", _PADDED.format("zeros"))),
        masks=True,
    ),
    Generator(
        "zeros",
        "zeros",
        "zeros, `False`, the least index",
        _one("zeros", "zeros", "zeros", "zeros, or the least value allowed", "constant"),
        masks=True,
    ),
    Generator(
        "large",
        "large",
        "100 times as large, `True`, the greatest index",
        _drawn("large", "large", "large", "values 100 times as large, or the greatest allowed"),
        usual=3,
    ),
    Generator(
        "tiny",
        "tiny",
        "a thousandth as large",
        _if(
            _has_floats, _drawn("tiny", "tiny", "tiny", "values a thousandth as large", "constant")
        ),
        usual=3,
    ),
    Generator(
        "ones",
        "ones",
        "every float is one, as in an image of one colour",
        _if(_has_floats, _one("ones", "ones", "constant", "ones, a constant image", "constant")),
    ),
    Generator(
        "negative",
        "negative",
        "no value above zero",
        _if(
            _may_be_negative,
            _drawn("negative", "negative", "negative", "negative values only", "edge"),
        ),
    ),
    Generator(
        "halves",
        "halves",
        "whole numbers plus one half, where roundings differ",
        _if(
            _may_be_halves,
            _drawn("halves", "halves", "halves", "whole numbers plus one half", "exact"),
        ),
        always=_once_if_it_decides,
    ),
    Generator(
        "ties",
        "ties",
        "three values only, so that many are equal: -1, 0 and 1, or the ends and middle of a range",
        _if(_has_floats, _drawn("ties", "ties", "ties", "three values, often repeated", "exact")),
        always=_once_if_it_decides,
    ),
    Generator(
        "mask-true",
        "mask-true",
        "masks that are `True`, or 1, everywhere; the other inputs are normal",
        _if(
            _has_masks, _one("mask-true", "mask-true", "true", _MASKED.format("ones only"), "edge")
        ),
        masks=True,
    ),
    Generator(
        "mask-false",
        "mask-false",
        "masks that are `False`, or 0, everywhere",
        _if(
            _has_masks,
            _one("mask-false", "mask-false", "false", _MASKED.format("zeros only"), "edge"),
        ),
        masks=True,
    ),
    Generator(
        "mask-row",
        "mask-row",
        "masks with one row of zeros only and one of ones only: one is wholly masked either way",
        _if(
            _has_mask_rows,
            _one(
                "mask-row",
                "mask-row",
                "row",
                _MASKED.format("a row of zeros and one of ones"),
                "edge",
            ),
        ),
        masks=True,
    ),
    Generator(
        "ends",
        "ends",
        "the least and the greatest index in turn",
        _if(
            _has_indices,
            _one("ends", "ends", "ends", "the least and the greatest index in turn", "edge"),
        ),
    ),
    Generator(
        "least-size",
        "sizes",
        "each dynamic dim at its least size, the others as in the example",
        _sized("least"),
        always=lambda draw: _ALL,
        usual=_ALL,
    ),
    Generator(
        "prime-size",
        "sizes",
        "at a prime number (of steps), or an odd one where the range holds no prime",
        _sized("prime"),
        always=lambda draw: _ALL,
        usual=_ALL,
    ),
    Generator(
        "greatest-size",
        "sizes",
        "at its greatest size that fits into memory and time",
        _sized("greatest"),
        always=lambda draw: _ALL,
        usual=_ALL,
    ),
    Generator(
        "odd-size",
        "sizes",
        "at a number (of steps) that is odd and no prime",
        _sized("odd"),
        always=lambda draw: 0,
        usual=_ALL,
    ),
    Generator(
        "all-sizes",
        "sizes",
        "all dims at their least, and all at their greatest, where there are several",
        _sized("all"),
        always=lambda draw: _ALL,
        usual=_ALL,
    ),
)
