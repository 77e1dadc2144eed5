"""Golden vectors: what a model gives on chosen inputs, as files that need no model to be judged by.

`golden.json` tells cases, noise and rule, `golden.npz` holds the arrays; `golden.write_golden`
writes both. Shipped as it stands in packages that are checked on a device: numpy and the standard
library only.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .compare import Errors, Signal
from .detections import Group, Rows
from .expected import CaptureCheck, Expected, Reference
from .verdict import Noise, Rule

__all__ = [
    "ARRAYS",
    "SCHEMA",
    "TABLE",
    "DamagedVectorsError",
    "Golden",
    "GoldenCase",
    "GoldenTensor",
    "read_golden",
    "seal_of",
    "table_of",
]

SCHEMA = 2
TABLE, ARRAYS = "golden.json", "golden.npz"


class DamagedVectorsError(Exception):
    """The files are missing, damaged, or not of one writing."""


@dataclass(frozen=True)
class GoldenTensor:
    """An input or output; `shape` holds sizes and names of dims."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class GoldenCase:
    """Inputs by name, as a session takes them: bfloat16 values are float32."""

    name: str
    kind: str
    inputs: Mapping[str, NDArray[Any]]
    description: str
    generator: str = ""


@dataclass(frozen=True)
class Golden:
    """What `judging.judge_runs` and `findings.report_of` need.

    left_out: names of the cases whose arrays were too large to keep.
    """

    inputs: tuple[GoldenTensor, ...]
    outputs: tuple[GoldenTensor, ...]
    cases: tuple[GoldenCase, ...]
    reference: Reference
    left_out: tuple[str, ...]


def seal_of(document: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a table's content, whatever its spacing."""
    content = {key: value for key, value in document.items() if key != "seal"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def table_of(rule: Rule) -> dict[str, Any]:
    """A rule as the table keeps it."""
    return asdict(rule)


def read_golden(folder: Path) -> Golden:
    """Read what `write_golden` wrote into `folder`.

    Raises:
        DamagedVectorsError: a file is missing, damaged, or of another writing.
    """
    document = _table(folder / TABLE)
    for name, digest in {ARRAYS: document["arrays"], **document["beside"]}.items():
        try:
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            raise DamagedVectorsError(f"{name} cannot be read: {error.strerror}") from None
        if found != digest:
            raise DamagedVectorsError(f"{name} is not the file that {TABLE} was written with")
    try:
        with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
            return _golden(document, arrays)
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise DamagedVectorsError(f"the golden vectors are damaged: {error}") from error


def _table(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DamagedVectorsError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedVectorsError(f"{path.name} is damaged: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise DamagedVectorsError(f"{path.name} is no table of golden vectors of schema {SCHEMA}")
    if document.get("seal") != seal_of(document):
        raise DamagedVectorsError(f"{path.name} was changed")
    return document


def _golden(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Golden:
    inputs, outputs = (
        tuple(GoldenTensor(t["name"], t["dtype"], tuple(t["shape"])) for t in document[which])
        for which in ("inputs", "outputs")
    )
    cases = []
    groups = tuple(
        Group(g["boxes"], g["scores"], g["labels"], tuple(g["further"]))
        for g in document["detections"]
    )
    rows: dict[str, dict[str, Rows]] = {}
    expected: dict[str, dict[str, Expected]] = {}
    for entry in document["cases"]:
        name = entry["name"]
        given = {tensor.name: arrays[f"{name}/inputs/{tensor.name}"] for tensor in inputs}
        cases.append(
            GoldenCase(name, entry["kind"], given, entry["description"], entry["generator"])
        )
        expected[name] = {
            tensor.name: _expected(
                f"{name}/{{}}/{tensor.name}", entry["expected"][tensor.name], arrays
            )
            for tensor in outputs
        }
        rows[name] = {
            group.boxes: _rows(name, group, entry["reach"][group.boxes], arrays) for group in groups
        }
    reference = Reference(
        # All that judging asks of a case is its name, kind and description.
        cases=cast(Any, tuple(cases)),
        expected=expected,
        capture=CaptureCheck(
            **{**document["capture"], "severity": float(document["capture"]["severity"])}
        ),
        random=tuple(document["random"]),
        tolerance_reason=document["tolerance_reason"],
        notes=tuple(document["notes"]),
        dtype=document["dtype"],
        besides={
            kind: {name: tuple(map(_noise, noise)) for name, noise in found.items()}
            for kind, found in document["besides"].items()
        },
        detections=groups,
        rows=rows,
    )
    if document["rule"] != table_of(reference.rule):
        raise ValueError("they were written for another rule")
    return Golden(inputs, outputs, tuple(cases), reference, tuple(document["left_out"]))


def _expected(key: str, entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Expected:
    shape = tuple(entry["shape"])
    codes = arrays[key.format("codes")] if entry["codes"] else None
    unstable: NDArray[np.bool_] | None = None
    if entry["unstable"] is not None:
        marked = entry["unstable"]
        unstable = arrays[key.format("unstable")] if marked else np.zeros(shape, np.bool_)
    truth = arrays[key.format("truth")]
    for array in (truth, codes, unstable):
        if array is not None and array.shape != shape:
            raise ValueError(f"{key.format('truth')} is of another shape than the table says")
    return Expected(
        entry["dtype"],
        shape,
        truth,
        _noise(entry["noise"]),
        codes=codes,
        intrinsic=entry["intrinsic"],
        unstable=unstable,
        doubt=entry["doubt"],
    )


def _rows(
    case: str, group: Group, reach: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Rows:
    names = filter(None, (group.boxes, group.scores, group.labels))
    return Rows(
        arrays[f"{case}/loose/{group.boxes}"],
        arrays[f"{case}/item/{group.boxes}"],
        {name: arrays[f"{case}/extra/{name}"] for name in names},
        {name: float(value) for name, value in reach.items()},
    )


def _noise(entry: Mapping[str, Any]) -> Noise:
    count, *sizes = entry["signal"]
    lanes = (Errors(count, *map(float, figures)) for count, *figures in entry["lanes"])
    return Noise(Signal(count, *map(float, sizes)), tuple(lanes))
