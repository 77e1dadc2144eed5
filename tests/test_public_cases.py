"""Twelve kinds of fault that people reported of exporters, each to its right end here.

An artifact of each case is either right, by its report and by numpy on the artifact's own
outputs, or it is refused with a message that names what cannot be done. Nothing in between:
docs/public-cases.md says which, and is checked against what happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import IsomorphError
from isomorph.exporter.result import ExportedArtifact
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

FORMATS = ("onnx", "openvino", "coreml")
HERE = f"{Path(__file__).name}:"  # and a number: the line of the model's code
PAGE = Path(__file__).parents[1] / "docs" / "public-cases.md"

# Far above what correct runtimes differ by, far below what any of the reported faults does.
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}


@dataclass(frozen=True)
class PublicCase:
    """A model in the manner of a report, the calls it must be right on, and how it may end.

    `samples` are tuples of arguments, the first is the example. `refusals` are what the message
    must name in the formats that refuse the case; a format that is not in it must be right.
    """

    build: Callable[[], nn.Module]
    names: tuple[str, ...]
    samples: tuple[tuple[Any, ...], ...]
    dynamic: dict[str, str] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("fp32",)
    refusals: dict[str, tuple[str, ...]] = field(default_factory=dict)


def noise(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


class WholeDivision(nn.Module):
    """Quotients and remainders of both signs, and a remainder by one."""

    def forward(
        self, n: torch.Tensor, d: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        floored = torch.div(n, d, rounding_mode="floor")
        return (
            floored,
            torch.div(n, d, rounding_mode="trunc"),
            torch.remainder(n, d),
            n.fmod(d),
            x % -1.75,
            x.fmod(-1.75),
            x.remainder(1),
        )


class SmoothResizing(nn.Module):
    """Bicubic with and without its low-pass, down and up."""

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def to(size: tuple[int, int], mode: str, antialias: bool) -> torch.Tensor:
            return functional.interpolate(image, size=size, mode=mode, antialias=antialias)

        return (
            to((5, 9), "bicubic", True),
            to((23, 31), "bicubic", True),
            to((5, 9), "bicubic", False),
            to((6, 4), "bilinear", True),
        )


class LowestMask(nn.Module):
    """Two additive masks of the lowest number: their sum is beyond it, and beyond float16."""

    def forward(self, scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        lowest = torch.finfo(scores.dtype).min
        size = scores.shape[-1]
        later = torch.full((size, size), lowest).triu(1)
        padded = (keep[:, None, None] == 0).to(scores.dtype) * lowest
        return (scores + later + padded).clamp(min=lowest).softmax(-1)


class Multiples(nn.Module):
    """What keyword arguments say, and a lowering may forget."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = torch.addmm(b[:, :2], b, a[:2].t(), beta=-0.75, alpha=3.0)
        return (
            a.add(b, alpha=7),
            a.sub(b, alpha=-0.5),
            product,
            functional.gelu(b * 2, approximate="tanh"),
        )


class RepeatedIndices(nn.Module):
    """Several values for one place: they add up, or the largest stays."""

    def forward(
        self, base: torch.Tensor, rows: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        across = rows[:, None].expand_as(values)
        return (
            base.index_put((rows,), values, accumulate=True),
            base.index_add(0, rows, values, alpha=-3),
            base.scatter_add(0, across, values),
            base.scatter_reduce(0, across, values, reduce="amax", include_self=False),
        )


class WritesThroughView(nn.Module):
    """Writes to its input by way of a view of it, and returns what comes of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = x.view(2, 5)
        table[:, 2:4] *= -3.0
        table[1].add_(10.0)
        return x - 0.25


class HandsThrough(nn.Module):
    """A constant, an input, one value twice, and another input."""

    def forward(self, x: torch.Tensor, tag: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.abs() - 1
        return torch.tensor([2.5, -1.0]), tag, y, y, x


class Normalised(nn.Module):
    """Instance norm by stored statistics and by the input's own."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
        self.own = nn.InstanceNorm2d(3, affine=True)
        with torch.no_grad():
            self.stored.running_mean.copy_(torch.tensor([5.0, 0.0, -1.5]))
            self.stored.running_var.copy_(torch.tensor([0.5, 16.0, 2.0]))
            self.stored.weight.copy_(torch.tensor([1.0, -2.0, 0.3]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.stored(x), self.own(x)


class Spectrogram(nn.Module):
    """A complex intermediate; the window is shorter than the transform."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hamming_window(96), persistent=False)

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = torch.stft(
            sound, 128, 40, 96, self.window, center=True, pad_mode="reflect", return_complex=True
        )
        return (spectrum.abs() ** 2).clamp_min(1e-8).log(), torch.view_as_real(spectrum)


class Nested(nn.Module):
    """A dict with an entry that nobody reads; results of every kind, None and a number too."""

    def forward(self, x: torch.Tensor, extra: dict[str, torch.Tensor]) -> dict[str, Any]:
        y = x * extra["gain"]
        parts = (y.amax(), None, y < 0.5)
        return {"best": y.argmin(-1), "scores": y, "parts": parts, "loss": None, "count": 7}


class ReadsByStride(nn.Module):
    """Operators that would go wrong on a channels-last image if they took its memory as it lies."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.conv(image).tanh()
        joined = torch.cat(
            [functional.pad(image, (0, 2, 1, 0)), functional.pad(y[:, :3], (2, 0, 0, 1))], 1
        )
        return (
            y.mean((2, 3)),
            joined,
            image.topk(2, dim=1).values,
            functional.pixel_unshuffle(y[:, :, :8, :6], 2),
            image.flatten(1),
        )


class Remembers(nn.Module):
    """Counts its calls and keeps a hidden state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("state", torch.zeros(3, 2))
        self.cell = nn.RNNCell(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.state.copy_(self.cell(x, self.state))
        return self.state / self.calls


CASES = {
    "floor and trunc division, remainder, fmod": PublicCase(
        WholeDivision,
        ("n", "d", "x"),
        (
            (
                torch.tensor([-9, -8, -1, 0, 3, 8, 9]),
                torch.tensor([4, -5, 7, 2, -4, 3, -2]),
                noise(7, seed=1, scale=4),
            ),
            (
                torch.tensor([5, -5, 5, -5, 6, -6, 1]),
                torch.tensor([3, 3, -3, -3, 3, -3, -1]),
                torch.tensor([-3.25, 3.75, -0.25, 0.25, 6.5, -1.5, 1.125]),
            ),
        ),
    ),
    "bicubic and bilinear with antialias": PublicCase(
        SmoothResizing,
        ("image",),
        ((noise(2, 3, 11, 14, seed=2),), (noise(2, 3, 11, 14, seed=3),)),
        refusals={"openvino": ("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", HERE)},
    ),
    "mask of finfo.min, also at fp16": PublicCase(
        LowestMask,
        ("scores", "keep"),
        (
            (noise(2, 2, 5, 5, seed=4), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])),
            (noise(2, 2, 5, 5, seed=5), torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0]])),
        ),
        precisions=("fp32", "fp16"),
    ),
    "alpha and beta, gelu by tanh": PublicCase(
        Multiples,
        ("a", "b"),
        ((noise(4, 6, seed=6), noise(4, 6, seed=7)), (noise(4, 6, seed=8), noise(4, 6, seed=9))),
    ),
    "scatter with repeated indices": PublicCase(
        RepeatedIndices,
        ("base", "rows", "values"),
        (
            (noise(6, 2, seed=10), torch.tensor([5, 0, 3, 3, 0]), noise(5, 2, seed=11)),
            (torch.ones(6, 2), torch.tensor([2, 2, 2, 2, 2]), noise(5, 2, seed=12)),
        ),
        refusals={"openvino": ("index_put", "scatter_reduce", HERE)},
    ),
    "write through a view of the input": PublicCase(
        WritesThroughView, ("x",), ((torch.arange(10.0),), (noise(10, seed=13),))
    ),
    "inputs and constants as outputs": PublicCase(
        HandsThrough,
        ("x", "tag"),
        ((noise(3, 2, seed=14), torch.tensor([41])), (noise(3, 2, seed=15), torch.tensor([-8]))),
    ),
    "instance norm by stored statistics": PublicCase(
        Normalised,
        ("x",),
        ((noise(2, 3, 5, 7, seed=16, scale=2),), (noise(2, 3, 5, 7, seed=17) + 4,)),
    ),
    "STFT, power and logarithm": PublicCase(
        Spectrogram,
        ("sound",),
        ((noise(2, 500, seed=18),), (noise(2, 500, seed=19, scale=0.1),)),
        refusals={"openvino": ("_fft_r2c", HERE)},
    ),
    "nested inputs and outputs": PublicCase(
        Nested,
        ("x", "extra_gain", "extra_spare"),
        (
            (noise(4, 3, seed=20), {"gain": noise(3, seed=21), "spare": torch.zeros(2)}),
            (noise(4, 3, seed=22), {"gain": noise(3, seed=23), "spare": torch.ones(2)}),
        ),
    ),
    "channels-last input": PublicCase(
        ReadsByStride,
        ("image",),
        (
            (noise(2, 3, 9, 7, seed=24).to(memory_format=torch.channels_last),),
            (noise(2, 3, 9, 7, seed=25),),
        ),
    ),
    "state kept between calls": PublicCase(
        Remembers,
        ("x",),
        ((noise(3, 5, seed=26),), (noise(3, 5, seed=27),)),
        refusals=dict.fromkeys(FORMATS, ("calls",)),
    ),
}
RUNS = [(name, precision) for name, case in CASES.items() for precision in case.precisions]


def leaves(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def by_name(case: PublicCase, sample: Sequence[Any]) -> dict[str, torch.Tensor]:
    return dict(zip(case.names, leaves(sample), strict=True))


def eager(case: PublicCase, sample: Sequence[Any]) -> list[np.ndarray]:
    """What the module returns, then what it left in an input that it wrote to."""
    given = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, sample)
    with torch.no_grad():
        found = leaves(case.build().eval()(*given))
    before, after = leaves(sample), leaves(given)
    found += [new for old, new in zip(before, after, strict=True) if not torch.equal(old, new)]
    return [value.numpy() for value in found]


@cache
def exported(
    name: str, precision: str, folder: Path
) -> dict[str, ExportedArtifact | IsomorphError]:
    """The case in every format: its artifact, or what was said instead."""
    case = CASES[name]
    first, *others = case.samples
    try:
        result = isomorph.export(
            case.build().eval(),
            FORMATS,
            args=first,
            dynamic=case.dynamic or None,
            data=[by_name(case, sample) for sample in (first, *others)],
            precision=precision,
            output=f"{folder}/",
        )
    except IsomorphError as error:
        return dict.fromkeys(FORMATS, error)
    return {a.format: a.error or a for a in result.artifacts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Callable[[str, str], Path]:
    return lru_cache(maxsize=None)(lambda name, precision: tmp_path_factory.mktemp("case"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("name", "precision"), RUNS)
def test_it_is_right_or_refused_by_name(name, precision, format, folder):
    case = CASES[name]
    found = exported(name, precision, folder(name, precision))[format]
    named = case.refusals.get(format)
    if isinstance(found, IsomorphError):
        assert named is not None, f"refused: {found.message}"
        assert found.exit_code == 4
        assert all(part in found.message for part in named), found.message
        assert ending(name, format) == "refused"
        return
    assert named is None, "what must be refused was written"
    assert found.verdict == "pass", found.report.reason
    assert found.evidence.kind in ("executed", "evaluated")
    assert ending(name, format) == "right"
    with isomorph.load(found.path) as session:
        for sample in case.samples:
            given = by_name(case, sample)
            feed = {spec.name: given[spec.name].numpy() for spec in session.inputs}
            outputs = session.run(feed)
            agree([outputs[spec.name] for spec in session.outputs], eager(case, sample), precision)


def agree(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], precision: str) -> None:
    """Arrays of an artifact and of eager, by numpy alone."""
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind in "biu":
            np.testing.assert_array_equal(mine, theirs)
        else:
            scale = max(1e-6, float(np.abs(theirs).max()))
            assert np.isfinite(mine).all()
            assert np.abs(mine - theirs).max() <= TOLERANCE[precision] * scale


def ending(name: str, format: str) -> str:
    """What the page says of a case in a format."""
    rows = re.findall(r"^\| ([^|]+) \| (\w+) \| (\w+) \| (\w+) \|", PAGE.read_text("utf-8"), re.M)
    known = {row[0]: dict(zip(FORMATS, row[1:], strict=True)) for row in rows}
    return known[name][format]


def test_the_page_tells_of_these_cases_and_no_others():
    rows = re.findall(r"^\| ([^|]+) \| (?:right|refused)", PAGE.read_text("utf-8"), re.M)
    assert rows == list(CASES)


def test_the_comparison_sees_a_wrong_value():
    """The check that the others stand on, on a value that is wrong."""
    right = [np.array([1.0, -2.0, 3.0], np.float32), np.array([1, 2])]
    agree(right, right, "fp32")
    for wrong in ([right[0] * 1.001, right[1]], [right[0], right[1] + 1], right[:1]):
        with pytest.raises(AssertionError):
            agree(wrong, right, "fp32")
