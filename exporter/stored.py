"""Tensors, entries and classes of a pickle that was read as inert stand-ins (`opcodes`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .allowlist import WRAPPERS, canonical
from .opcodes import Call, Global, Pairs, Persistent

__all__ = ["StoredTensor", "entries_of", "root_class_of", "tensors_of"]

_WALK_LIMIT = 500_000
_NAME_LIMIT = 300
_STORAGE_DTYPES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
}
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in the file: its dotted name, torch dtype name and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def tensors_of(root: Any) -> tuple[StoredTensor, ...]:
    """Every tensor reachable from `root`, once, under the first name it is found by."""
    found: list[StoredTensor] = []
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", root)]
    while pending and len(seen) < _WALK_LIMIT:
        name, value = pending.pop()
        if not isinstance(value, (Call, Pairs, list, tuple)) or id(value) in seen:
            continue
        seen.add(id(value))
        tensor = _as_tensor(name, value)
        if tensor is not None:
            found.append(tensor)
            continue
        children = list(_children(name, value))
        pending += reversed(children)
    return tuple(found)


def _children(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, child in _items(value):
        inner = name if key in _MODULE_PARTS else f"{name}.{key}" if name else str(key)
        yield inner[:_NAME_LIMIT], child


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Pairs):
        yield from ((k, v) for k, v in value.items if isinstance(k, (str, int)))
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif isinstance(value, Call):
        yield from _items(value.pairs)
        yield from enumerate(value.elements)
        if isinstance(value.state, Pairs):
            yield from _items(value.state)
        if isinstance(value.callee, Global) and value.callee.name == "OrderedDict":
            yield from _ordered_dict_items(value.arguments)


def _ordered_dict_items(arguments: Any) -> Iterator[tuple[Any, Any]]:
    """Python 2 pickled an OrderedDict as a call on a list of [key, value] pairs."""
    pairs = arguments[0] if isinstance(arguments, tuple) and arguments else []
    for pair in pairs if isinstance(pairs, list) else []:
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str):
            yield pair[0], pair[1]


def _as_tensor(name: str, value: Any) -> StoredTensor | None:
    if not isinstance(value, Call) or not isinstance(value.callee, Global):
        return None
    arguments = value.arguments if isinstance(value.arguments, tuple) else ()
    function = value.callee.name
    if function.startswith("_rebuild_parameter") and arguments:
        return _as_tensor(name, arguments[0])
    if function == "_rebuild_from_type_v2" and len(arguments) > 2:
        return _as_tensor(name, Call(arguments[0], arguments[2]))
    if function in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
        return _from_storage(name, arguments)
    if function == "_rebuild_qtensor":
        return _from_storage(name, arguments)
    if function == "_rebuild_meta_tensor_no_storage" and len(arguments) > 1:
        return StoredTensor(name, _dtype_name(arguments[0]), _shape(arguments[1]))
    return None


def _from_storage(name: str, arguments: tuple[Any, ...]) -> StoredTensor | None:
    """`(storage, offset, size, stride, ...)`; version 3 ends with the dtype."""
    if len(arguments) < 3:
        return None
    dtype = "unknown"
    storage = arguments[0]
    if isinstance(storage, Persistent) and isinstance(storage.identity, tuple):
        kind = storage.identity[1] if len(storage.identity) > 1 else None
        if isinstance(kind, Global):
            dtype = _STORAGE_DTYPES.get(kind.name, kind.name)
    if len(arguments) > 6 and isinstance(arguments[6], Global):
        dtype = _dtype_name(arguments[6])
    return StoredTensor(name, dtype, _shape(arguments[2]))


def _dtype_name(value: Any) -> str:
    return value.name if isinstance(value, Global) else "unknown"


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, Call) and isinstance(value.arguments, tuple) and value.arguments:
        value = value.arguments[0]  # torch.Size((2, 3))
    return tuple(n for n in value if isinstance(n, int)) if isinstance(value, tuple) else ()


def root_class_of(root: Any) -> str | None:
    """The class of a pickled module, itself or an entry of a dict, or None.

    A wrapper such as DataParallel is looked through, as loading takes it off.
    """
    own = _module_class(root)
    if own in WRAPPERS:
        return _wrapped_class(root) or own
    if own is not None or not isinstance(root, (Call, Pairs)):
        return own
    pairs = root.pairs if isinstance(root, Call) else root
    held = (value for _, value in pairs.items if _module_class(value))
    return next((root_class_of(value) for value in held), None)


def _wrapped_class(wrapper: Call) -> str | None:
    """The class of a wrapper's `.module`, one or two wrappers deep."""
    inner: Any = wrapper
    for _ in range(3):
        state = inner.state if isinstance(inner, Call) else None
        modules = dict(_named(state)).get("_modules")
        inner = dict(_named(modules.pairs if isinstance(modules, Call) else modules)).get("module")
        if (found := _module_class(inner)) not in WRAPPERS:
            return found
    return None


def _named(pairs: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(pairs, Pairs):
        yield from ((key, value) for key, value in pairs.items if isinstance(key, str))


def _module_class(root: Any) -> str | None:
    callee = root.callee if isinstance(root, Call) else None
    if isinstance(callee, Global) and callee.name == "_reconstructor":
        callee = root.arguments[0] if root.arguments else None
    if not isinstance(callee, Global) or not isinstance(root.state, Pairs):
        return None
    keys = {key for key, _ in root.state.items if isinstance(key, str)}
    return canonical(callee.module, callee.name) if "_modules" in keys else None


def entries_of(root: Any, limit: int = 40) -> tuple[tuple[str, str], ...]:
    """Top-level keys of a dict that is no state_dict, with what each holds."""
    pairs = root.pairs if isinstance(root, Call) else root
    if not isinstance(pairs, Pairs):
        return ()
    if all(_as_tensor("", value) for _, value in pairs.items):
        return ()
    return tuple(
        (str(key)[:_NAME_LIMIT], _describe(value))
        for key, value in pairs.items[:limit]
        if isinstance(key, (str, int))
    )


def _describe(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)[:80]
    if isinstance(value, str):
        return repr(value[:60])
    tensor = _as_tensor("", value)
    if tensor is not None:
        return f"tensor {tensor.dtype} {'x'.join(map(str, tensor.shape)) or 'scalar'}"
    module = _module_class(value)
    if module is not None:
        return f"module {module}"
    if isinstance(value, Pairs):
        return _described_dict(value)
    if isinstance(value, Call):
        name = value.callee.name if isinstance(value.callee, Global) else "object"
        return _described_dict(value.pairs) if name == "OrderedDict" else f"object {name}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def _described_dict(pairs: Pairs) -> str:
    tensors = sum(_as_tensor("", value) is not None for _, value in pairs.items)
    if tensors and 2 * tensors > len(pairs.items):
        return f"state_dict of {tensors} tensors"
    return f"dict of {len(pairs.items)}"
