"""What goes into a model and what comes out: names, dtypes, shapes, dynamic dims.

Also the two small languages in which users write them, `--input` and
`--dynamic`. Pure Python: nothing here imports torch, so the command line can
parse and a device can read a manifest without it. Dtypes are torch's names as
strings (`"float32"`, `"int64"`, `"bool"`, `"bfloat16"`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

__all__ = [
    "DTYPES",
    "FLOAT_DTYPES",
    "Dim",
    "DynamicRequest",
    "InputRequest",
    "TensorSpec",
    "parse_dynamic",
    "parse_input",
]

FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")
DTYPES = (
    *FLOAT_DTYPES,
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "complex64", "complex128"),
)


@dataclass(frozen=True)
class Dim:
    """A named dimension whose size is chosen at run time.

    `min` and `max` are inclusive; `max` is None where no upper bound is known.
    Two axes with the same name always have the same size. Sizes are multiples
    of `step`, for models that halve an image several times. A dim that is
    computed from others (an output's) has the expression as its name.
    """

    name: str
    min: int = 1
    max: int | None = None
    step: int = 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class TensorSpec:
    """One tensor at the model's border.

    `shape` mixes fixed sizes and dims. `range` is the inclusive range of values
    that an input takes (None: any); for integers that index a table it is the
    table's. `mutates` names the input whose new value this output carries, for
    an output that exists only because the model writes to that input.
    """

    name: str
    dtype: str
    shape: tuple[int | Dim, ...]
    range: tuple[float, float] | None = None
    mutates: str | None = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOAT_DTYPES

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(size for size in self.shape if isinstance(size, Dim))

    def resolve(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with each dim replaced by its size from `sizes` (name -> size)."""
        return tuple(sizes[s.name] if isinstance(s, Dim) else s for s in self.shape)

    def to_json(self) -> dict[str, Any]:
        shape = [
            {"dim": s.name, "min": s.min, "max": s.max, **({"step": s.step} if s.step > 1 else {})}
            if isinstance(s, Dim)
            else s
            for s in self.shape
        ]
        document: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": shape}
        if self.range is not None:
            document["range"] = list(self.range)
        if self.mutates is not None:
            document["mutates"] = self.mutates
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TensorSpec:
        shape = tuple(
            Dim(s["dim"], s["min"], s["max"], s.get("step", 1))
            if isinstance(s, Mapping)
            else int(s)
            for s in document["shape"]
        )
        span = document.get("range")
        return TensorSpec(
            document["name"],
            document["dtype"],
            shape,
            range=None if span is None else (span[0], span[1]),
            mutates=document.get("mutates"),
        )


@dataclass(frozen=True)
class InputRequest:
    """A parsed `--input`: `name` is None when given by position, else a parameter's name.

    A dotted name reaches into a nested argument: `opts.bias` is `{"bias": ...}`
    passed as `opts`, `pair.0` the first of a tuple.
    """

    name: str | None
    shape: tuple[int, ...]
    dtype: str = "float32"
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class DynamicRequest:
    """A parsed `--dynamic`: axis `axis` of input `name` varies as `dim`."""

    name: str
    axis: int
    dim: Dim


_INPUT_HINT = (
    "write [NAME=]SHAPE[:DTYPE[:MIN..MAX]], for example 1x3x224x224, "
    "ids=1x128:int64:0..30521 or mask=1x128:bool"
)
_DYNAMIC_HINT = (
    "write NAME.AXIS=DIM[:MIN..MAX[:STEP]], for example x.0=batch:1..16 or x.2=height:64..512:32"
)


def parse_input(text: str) -> InputRequest:
    """Parse `[NAME=]SHAPE[:DTYPE[:MIN..MAX]]`; a SHAPE of `scalar` has no dimensions.

    Raises:
        UsageError: the text is not of that form.
    """
    name, equals, rest = text.rpartition("=")
    if equals and not name.strip():
        raise UsageError(f"input {text!r} has an empty name", hint=_INPUT_HINT)
    shape_text, *more = rest.split(":")
    if len(more) > 2:
        raise UsageError(f"input {text!r} has too many parts", hint=_INPUT_HINT)
    dtype = more[0].strip() if more and more[0].strip() else "float32"
    if dtype not in DTYPES:
        near = difflib.get_close_matches(dtype, DTYPES, 3)
        raise UsageError(
            f"input {text!r} has the unknown dtype {dtype!r}",
            hint=f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(DTYPES)}",
        )
    span = _parse_range(more[1], text, _INPUT_HINT) if len(more) == 2 else None
    return InputRequest(name.strip() or None, _parse_shape(shape_text, text), dtype, span)


def _parse_shape(shape_text: str, text: str) -> tuple[int, ...]:
    if shape_text.strip() == "scalar":
        return ()
    sizes = re.split(r"[x,]", shape_text.strip())
    if not all(re.fullmatch(r"\d{1,12}", size.strip()) for size in sizes):
        raise UsageError(f"input {text!r} has no readable shape", hint=_INPUT_HINT)
    shape = tuple(int(size) for size in sizes)
    if 0 in shape:
        raise UsageError(
            f"input {text!r} has an axis of size 0, so there would be nothing to compare",
            hint="give a size of at least 1",
        )
    return shape


def _parse_range(span: str, text: str, hint: str) -> tuple[float, float]:
    low, dots, high = span.partition("..")
    try:
        limits = (_number(low), _number(high))
    except ValueError:
        limits = (1.0, 0.0)
    if not dots or not -_LARGEST <= limits[0] <= limits[1] <= _LARGEST:
        raise UsageError(f"{text!r} has no readable range {span!r}", hint=hint)
    return limits


# Bounds beyond the range of int64 mean nothing to a tensor.
_LARGEST = 2**63 - 1
_LARGEST_SIZE = 2**31 - 1


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_dynamic(text: str) -> DynamicRequest:
    """Parse `NAME.AXIS=DIM[:MIN..MAX[:STEP]]`.

    Raises:
        UsageError: the text is not of that form.
    """
    target, equals, rest = text.partition("=")
    if not equals:
        raise UsageError(f"dynamic axis {text!r} is not readable", hint=_DYNAMIC_HINT)
    return parse_dynamic_entry(target.strip(), rest.strip())


def parse_dynamic_entry(target: str, rest: str) -> DynamicRequest:
    """The same from its two halves, as the Python API's mapping gives them."""
    if not isinstance(target, str) or not isinstance(rest, str):
        raise UsageError(
            f"dynamic takes texts, not {rest!r}",
            hint='for example dynamic={"x.0": "batch:1..16"}',
        )
    text = f"{target}={rest}"
    name, dot, axis = target.rpartition(".")
    dim_name, *more = rest.split(":")
    if not dot or not name or not re.fullmatch(r"-?\d+", axis) or len(more) > 2:
        raise UsageError(f"dynamic axis {text!r} is not readable", hint=_DYNAMIC_HINT)
    if not re.fullmatch(r"[A-Za-z_]\w*", dim_name):
        raise UsageError(f"dynamic axis {text!r} needs a name for the dim", hint=_DYNAMIC_HINT)
    low: float = 1
    high: float | None = None
    if more:
        low, high = _parse_range(more[0], text, _DYNAMIC_HINT)
    step = more[1] if len(more) == 2 else "1"
    if not step.isdigit() or int(step) < 1 or int(low) < 1:
        raise UsageError(f"dynamic axis {text!r} has sizes below 1", hint=_DYNAMIC_HINT)
    if (high or 0) > _LARGEST_SIZE or int(step) > _LARGEST_SIZE:
        raise UsageError(f"dynamic axis {text!r} has sizes above {_LARGEST_SIZE}")
    top = None if high is None else int(high)
    sizes = range(-(-int(low) // int(step)), _LARGEST_SIZE if top is None else top // int(step) + 1)
    if len(sizes) < 2:
        raise UsageError(
            f"dynamic axis {text!r} leaves {len(sizes) or 'no'} size to choose",
            hint="leave it out of --dynamic, or widen its range",
        )
    return DynamicRequest(name, int(axis), Dim(dim_name, int(low), top, int(step)))
