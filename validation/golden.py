"""Writes golden vectors: a reference for those who judge an artifact without the model."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exporter.graph import Graph
from ..hashing import sha256_of
from .arrays import to_numpy
from .cases import Case
from .expected import Reference
from .findings import shown_shape
from .parity import as_given
from .vectors import ARRAYS, SCHEMA, TABLE, read_golden, seal_of, table_of
from .verdict import OWN_KINDS, Noise

__all__ = ["SIZE_LIMIT", "read_golden", "write_golden"]

# Bytes of arrays beyond which cases are left out, but for one of each of these kinds.
SIZE_LIMIT = 128 * 2**20
_KEPT_KINDS = (*OWN_KINDS, "normal", "zeros", "large", "tiny", "sizes")

# The earliest date that a zip archive can hold: the same arrays give the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE, _UNIX = 0o100644 << 16, 3


def write_golden(
    folder: Path, graph: Graph, reference: Reference, *, size_limit: int = SIZE_LIMIT
) -> None:
    """Write `golden.npz` and `golden.json` into `folder`; the same reference gives the same bytes.

    The arrays of cases are kept as long as they fit into `size_limit` bytes: the user's own data
    first, then one case of each kind (of `_KEPT_KINDS` whatever their size), then the others in
    order. Of a case that is left out the noise is kept, which counts for its kind's floor.

    Args:
        folder: what else it holds in JSON files is recorded, so that the vectors are taken for no
            other package.
        graph: names inputs and outputs.
        reference: what they must give.

    Raises:
        OSError: the folder cannot be written or is full.
    """
    kept = _kept(reference, size_limit)
    names = {case.name for case in kept}
    left_out = [case for case in reference.cases if case.name not in names]
    _write_arrays(folder / ARRAYS, kept, reference)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "arrays": sha256_of(folder / ARRAYS),
        "beside": {
            path.name: sha256_of(path)
            for path in sorted(folder.glob("*.json"))
            if path.name != TABLE
        },
        "inputs": [_tensor(spec) for spec in graph.inputs],
        "outputs": [_tensor(spec) for spec in graph.outputs],
        "dtype": reference.dtype,
        "rule": table_of(reference.rule),
        "tolerance_reason": reference.tolerance_reason,
        "random": list(reference.random),
        "notes": [*reference.notes, *_notes(left_out, reference)],
        "capture": {
            "reason": reference.capture.reason,
            "hint": reference.capture.hint,
            "severity": _number(reference.capture.severity),
            "case": reference.capture.case,
            "output": reference.capture.output,
        },
        "detections": [asdict(group) for group in reference.detections],
        "cases": [_case(case, reference) for case in kept],
        "left_out": [case.name for case in left_out],
        "besides": _besides(left_out, reference),
    }
    document["seal"] = seal_of(document)
    text = json.dumps(document, indent=1, allow_nan=False)
    (folder / TABLE).write_text(text + "\n", encoding="utf-8")


def _kept(reference: Reference, limit: int) -> list[Case]:
    """Cases whose arrays are kept, in the reference's order."""
    cases = reference.cases
    first_of_kind = {case.kind: case.name for case in reversed(cases)}
    demanded = {name for kind, name in first_of_kind.items() if kind in _KEPT_KINDS}
    own = [case for case in cases if case.kind in OWN_KINDS]
    firsts = [case for case in cases if first_of_kind[case.kind] == case.name]
    firsts.sort(key=lambda case: case.name not in demanded)
    names: dict[str, None] = {}
    size = 0
    for case in (*own, *firsts, *cases):
        if case.name in names:
            continue
        more = sum(array.nbytes for _, array in _arrays(case, reference))
        if size + more <= limit or case.name in demanded:
            names[case.name] = None
            size += more
    return [case for case in cases if case.name in names]


def _notes(left_out: Sequence[Case], reference: Reference) -> list[str]:
    if not left_out:
        return []
    names = ", ".join(case.name for case in left_out)
    return [
        f"{len(left_out)} of {len(reference.cases)} cases are too large for the package and were "
        f"left out: {names}"
    ]


def _arrays(case: Case, reference: Reference) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays of a case by the key that `vectors` knows them under."""
    expected = reference.expected[case.name]
    for name, tensor in case.inputs.items():
        yield f"{case.name}/inputs/{name}", as_given(to_numpy(tensor))
    for name, entry in expected.items():
        yield f"{case.name}/truth/{name}", entry.truth
        if entry.codes is not None:
            yield f"{case.name}/codes/{name}", entry.codes
        if entry.unstable is not None and entry.unstable.any():
            yield f"{case.name}/unstable/{name}", entry.unstable
    for boxes, rows in reference.rows.get(case.name, {}).items():
        yield f"{case.name}/loose/{boxes}", rows.loose
        yield f"{case.name}/item/{boxes}", rows.item
        for name, values in rows.extra.items():
            yield f"{case.name}/extra/{name}", values


def _write_arrays(path: Path, cases: Sequence[Case], reference: Reference) -> None:
    """As `np.savez` does, which stamps the members with the time."""
    with zipfile.ZipFile(path, "w") as archive:
        for case in cases:
            for key, array in _arrays(case, reference):
                member = zipfile.ZipInfo(f"{key}.npy", _DATE)
                member.external_attr, member.create_system = _REGULAR_FILE, _UNIX
                # `ascontiguousarray` alone makes a vector of a scalar.
                plain = np.ascontiguousarray(array).reshape(array.shape)
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, plain, allow_pickle=False)


def _tensor(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(shown_shape(spec))}


def _case(case: Case, reference: Reference) -> dict[str, Any]:
    expected = reference.expected[case.name]
    return {
        "name": case.name,
        "kind": case.kind,
        "generator": getattr(case, "generator", ""),
        "description": case.description,
        "expected": {
            name: {
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "noise": _noise(entry.noise),
                "codes": entry.codes is not None,
                "intrinsic": entry.intrinsic,
                # None: floats; else whether any element changes under noise.
                "unstable": None if entry.unstable is None else bool(entry.unstable.any()),
                "doubt": entry.doubt,
            }
            for name, entry in expected.items()
        },
        "reach": {
            boxes: {name: _number(reach) for name, reach in rows.reach.items()}
            for boxes, rows in reference.rows.get(case.name, {}).items()
        },
    }


def _besides(cases: Sequence[Case], reference: Reference) -> dict[str, dict[str, list[Any]]]:
    """Noise of outputs that are measured in floors, in cases left out, by kind and output."""
    found: dict[str, dict[str, list[Any]]] = {}
    for case in cases:
        for name, entry in reference.expected[case.name].items():
            if entry.is_measured:
                found.setdefault(case.kind, {}).setdefault(name, []).append(_noise(entry.noise))
    return found


def _noise(noise: Noise) -> dict[str, Any]:
    signal = noise.signal
    return {
        "signal": [signal.count, *map(_number, astuple(signal)[1:])],
        "lanes": [[lane.count, *map(_number, astuple(lane)[1:])] for lane in noise.lanes],
    }


def _number(value: float) -> float | str:
    """JSON has no infinities and no NaN; `float` reads these words."""
    return value if np.isfinite(value) else str(value)
