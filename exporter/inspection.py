"""What is in a checkpoint file, told without torch and without executing anything.

Pickles are read opcode by opcode over inert stand-ins (`opcodes`), zip archives
by their table of contents, safetensors by their header. Tensor data is never
read, so a file of gigabytes takes no longer than a small one.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputFileError
from .allowlist import WRAPPERS, Standing, canonical, standing
from .opcodes import BoundedReader, EndlessPickleError, Global, PickleError, read_pickle
from .sniffing import FileKind, remedy, sniff, typed
from .stored import StoredTensor, entries_of, root_class_of, tensors_of

__all__ = ["Inspection", "StoredTensor", "inspect"]

# A pickle names tensors but does not hold them: 2 GB of weights take under 1 MB.
_PICKLE_LIMIT = 64 << 20
_JSON_LIMIT = 128 << 20
_SAFETENSORS_DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "BOOL": "bool"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"},
}
# torch._export.serde.schema.ScalarType.
_EXPORT_DTYPES = {
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32"},
    **{8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool"},
    **{13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2"},
}
_MODEL = "--model path/to/file.py:Class"


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found.

    `globals` are the names that unpickling would import, each with its standing
    (`allowlist.standing`: safe, library, unknown, dangerous); `root_class` is the
    class of a pickled module, itself or inside a dict; `entries` are the top-level
    keys of a training dict with what each holds; `suggestion` is the command to go
    on with.
    """

    path: str
    format: str
    looks_like: str
    bytes: int
    tensors: tuple[StoredTensor, ...] = ()
    globals: tuple[tuple[str, Standing], ...] = ()
    root_class: str | None = None
    entries: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    suggestion: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "looks_like": self.looks_like,
            "bytes": self.bytes,
            "tensors": [
                {"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in self.tensors
            ],
            "globals": [{"name": name, "standing": rank} for name, rank in self.globals],
            "root_class": self.root_class,
            "entries": [{"key": key, "holds": holds} for key, holds in self.entries],
            "notes": list(self.notes),
            "suggestion": self.suggestion,
        }

    def named(self, rank: Standing) -> list[str]:
        """The globals of one standing."""
        return [name for name, found in self.globals if found == rank]


def inspect(path: str | Path) -> Inspection:
    """Read what a file holds. Executes nothing, and never reads tensor data.

    Raises:
        InputFileError: it is missing, empty, a directory, unreadable, or damaged.
    """
    source = Path(path)
    found = sniff(source)
    try:
        return _inspect(source, found)
    except EndlessPickleError as error:
        raise InputFileError(
            f"{source} is refused: its pickle has {error}, which no checkpoint needs",
            hint="save only the weights: torch.save(model.state_dict(), ...)",
        ) from error
    except (
        *(PickleError, zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError),
        *(struct.error, ValueError, NotImplementedError, RuntimeError, RecursionError),
        *(TypeError, AttributeError, OverflowError),  # JSON of another shape than it should have
    ) as error:
        raise InputFileError(
            f"{source} looks like {found.looks_like} but is truncated or damaged: {error}",
            hint="the save or download was interrupted; repeat it",
        ) from error


def _inspect(source: Path, found: FileKind) -> Inspection:
    if found.kind == "torch_zip":
        return _of_pickle(source, found, [_zip_pickle(source, found, "data.pkl")])
    if found.kind == "torch_legacy":
        return _of_pickle(source, found, _legacy_pickles(source, found.size))
    if found.kind == "pickle":
        with source.open("rb") as file:
            return _of_pickle(source, found, [read_pickle(BoundedReader(file, _PICKLE_LIMIT))])
    if found.kind == "safetensors":
        return _of_safetensors(source, found)
    if found.kind == "torchscript":
        return _of_torchscript(source, found)
    if found.kind == "pt2":
        return _of_pt2(source, found)
    if found.kind == "aot_package":
        return _plain(source, found, notes=("holds compiled native code: only --trust loads it",))
    return _plain(source, found, notes=(f"no checkpoint to export: {remedy(found)}",))


def _plain(source: Path, found: FileKind, **more: Any) -> Inspection:
    return Inspection(str(source), found.kind, found.looks_like, found.size, **more)


def _zip_pickle(source: Path, found: FileKind, name: str) -> tuple[Any, list[Global]]:
    with zipfile.ZipFile(source) as archive, archive.open(f"{found.root}/{name}") as member:
        return read_pickle(BoundedReader(member, _PICKLE_LIMIT))


def _legacy_pickles(source: Path, size: int) -> list[tuple[Any, list[Global]]]:
    """The pickles before the tensor data: magic, version, system, object, storage keys."""
    with source.open("rb") as file:
        reader = BoundedReader(file, min(size, _PICKLE_LIMIT))
        return [read_pickle(reader) for _ in range(5)]


def _ranked(named: list[Global]) -> dict[str, Standing]:
    return {canonical(one.module, one.name): standing(one.module, one.name) for one in named}


def _of_pickle(
    source: Path, found: FileKind, pickles: list[tuple[Any, list[Global]]]
) -> Inspection:
    ranks: dict[str, Standing] = {}
    for _, named in pickles:
        ranks |= _ranked(named)
    root = pickles[3 if len(pickles) == 5 else 0][0]
    result = _plain(
        source,
        found,
        tensors=tensors_of(root),
        globals=tuple(ranks.items()),
        root_class=root_class_of(root),
        entries=entries_of(root),
        notes=tuple(f"wrapped in {_leaf(n)}; loading takes it off" for n in ranks if n in WRAPPERS),
    )
    return _with_advice(result)


def _with_advice(found: Inspection) -> Inspection:
    dangerous, unknown = found.named("dangerous"), found.named("unknown")
    if dangerous:
        note = f"unpickling it would call {', '.join(dangerous[:5])}: refused without --trust"
        return replace(found, notes=(*found.notes, note), suggestion="")
    if _is_optimizer(found):
        note = "this is an optimizer's state, not a model"
        return replace(found, notes=(*found.notes, note), suggestion="")
    if found.root_class is None:
        return replace(found, suggestion=_export(found, _MODEL))
    if not unknown:
        return replace(found, suggestion=_export(found))
    note = f"names classes that are not allowed by default: {', '.join(unknown[:5])}"
    # No import finds what a script defined: the script itself must be named.
    flags = [f"--allow {name}" for name in unknown if not name.startswith("__main__.")]
    if len(flags) < len(unknown):
        leaf = _leaf(found.root_class) if found.root_class in unknown else "callable"
        flags.insert(0, f"--model path/to/file.py:{leaf}")
    return replace(found, notes=(*found.notes, note), suggestion=_export(found, *flags))


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _is_optimizer(found: Inspection) -> bool:
    """What `Optimizer.state_dict()` gives: its two entries, or no tensors but of its state."""
    if {key for key, _ in found.entries} == {"state", "param_groups"}:
        return True
    names = [tensor.name for tensor in found.tensors]
    return bool(names) and all(re.search(r"(^|\.)state\.\d+\.", name) for name in names)


def _export(found: Inspection, *flags: str) -> str:
    """The command to go on with, with an input that fits the first layer if that can be told."""
    words = ("isomorph export", typed(found.path), *flags, f"-i {_guessed_input(found.tensors)}")
    return " ".join(words)


def _guessed_input(tensors: Iterable[StoredTensor]) -> str:
    """From the first weight `[out, in, ...]`; `SHAPE` where it tells nothing."""
    weights = (t for t in tensors if re.search(r"(^|\.)weight(_v|_ih_l0)?$", t.name))
    first = next((t for t in weights if len(t.shape) > 1), None)
    if first is None:
        return "SHAPE"
    outer, inner, *kernel = first.shape
    if first.name.endswith("weight_ih_l0"):
        return f"1x10x{inner}"
    if not kernel and re.search(r"emb|wte|token", first.name.lower()):
        return f"1x16:int64:0..{outer - 1}"
    sizes = {0: "", 1: "x1000", 2: "x224x224", 3: "x16x112x112"}.get(len(kernel))
    return "SHAPE" if sizes is None else f"1x{inner}{sizes}"


def _of_safetensors(source: Path, found: FileKind) -> Inspection:
    with source.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _JSON_LIMIT:
            raise ValueError(f"its header claims {length} bytes")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    metadata = _object(header.pop("__metadata__", {}), "its metadata")
    tensors = tuple(
        StoredTensor(
            name,
            _SAFETENSORS_DTYPES.get(_text(entry["dtype"], name), entry["dtype"]),
            _sizes(entry["shape"], name),
        )
        for name, entry in header.items()
        if _object(entry, name)
    )
    entries = tuple((str(k), str(v)[:80]) for k, v in metadata.items())
    result = _plain(source, found, tensors=tensors, entries=entries)
    return replace(result, suggestion=_export(result, _MODEL))


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what[:80]} is no JSON object")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the dtype of {name[:80]} is no name")
    return value


def _sizes(value: Any, name: str) -> tuple[int, ...]:
    """A shape; -1 stands for a size that is not known before the model runs."""
    if not isinstance(value, list) or not all(type(n) is int and n >= -1 for n in value):
        raise ValueError(f"the shape of {name[:80]} is no list of sizes")
    return tuple(value)


def _of_torchscript(source: Path, found: FileKind) -> Inspection:
    root, named = _zip_pickle(source, found, "data.pkl")
    # TorchScript's classes live in the archive's own code, and torch's C++ reader knows its
    # helpers by name: neither is Python's to import.
    own = [one for one in named if not one.module.startswith(("__torch__", "torch.jit._pickle"))]
    result = _plain(source, found, tensors=tensors_of(root), globals=tuple(_ranked(own).items()))
    return replace(result, suggestion=_export(result))


def _of_pt2(source: Path, found: FileKind) -> Inspection:
    tensors: list[StoredTensor] = []
    notes: list[str] = []
    tables = [m for m in found.members if m.endswith("_config.json") and "/data/" in m]
    with zipfile.ZipFile(source) as archive:
        for table in tables:
            if archive.getinfo(table).file_size > _JSON_LIMIT:
                raise ValueError(f"{table} is too large")
            config = _object(json.loads(archive.read(table)), table)
            entries = _object(config.get("config", {}), f"config in {table}")
            tensors += [_exported(name, _object(e, name)) for name, e in entries.items()]
            unpickled = [n for n, e in entries.items() if e.get("use_pickle")]
            if unpickled:
                notes.append(f"holds pickled objects: {', '.join(unpickled[:5])}")
    if any("/data/aotinductor/" in member for member in found.members):
        notes.append("holds compiled native code: only --trust loads it")
    command = f"isomorph export {typed(str(source))}"
    return _plain(source, found, tensors=tuple(tensors), notes=tuple(notes), suggestion=command)


def _exported(name: str, entry: Mapping[str, Any]) -> StoredTensor:
    meta = _object(entry.get("tensor_meta") or {}, f"tensor_meta of {name}")
    sizes = [_object(size, f"a size of {name}").get("as_int", -1) for size in meta.get("sizes", ())]
    dtype = _EXPORT_DTYPES.get(int(meta.get("dtype", 0)), "unknown")
    return StoredTensor(name, dtype, _sizes(sizes, name))
