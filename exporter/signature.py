"""What goes into a model and what comes out: names, dtypes, shapes, dynamic dims.

Pure Python: nothing here imports torch, so the command line can parse and a
device can read a manifest without it. Dtypes are torch's names as strings
(`"float32"`, `"int64"`, `"bool"`, `"bfloat16"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DTYPES", "FLOAT_DTYPES", "Dim", "TensorSpec"]

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
    Two axes with the same name always have the same size.
    """

    name: str
    min: int = 1
    max: int | None = None

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
            {"dim": s.name, "min": s.min, "max": s.max} if isinstance(s, Dim) else s
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
            Dim(s["dim"], s["min"], s["max"]) if isinstance(s, Mapping) else int(s)
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
