"""Unpickle what an allow-list admits, and nothing else.

torch's own `weights_only` unpickler reads state_dicts. A pickled module needs
more: newer pickle protocols, the files of torch before 1.6, attributes that are
defaultdicts or partials. `RestrictedPickle` is what `torch.load` takes as its
`pickle_module` for those. It differs from pickle in four ways:

- a global is resolved only if `allowlist.standing` or `--allow` admits it;
- only classes and functions resolved that way can be called, never a value that
  the pickle made; a Module class is never called, only `cls.__new__(cls)`;
- a dotted name may only walk through classes;
- in salvage mode, classes that are not admitted become inert records, so that
  the weights inside a foreign training dict can be read without its packages.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import functools
import importlib
import pickle
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ..errors import UsageError
from .allowlist import (
    PURE_FUNCTIONS,
    REBUILD_FUNCTIONS,
    SAFE_CLASSES,
    WRAPPER_SETTINGS,
    WRAPPERS,
    canonical,
    standing,
)

__all__ = ["Admission", "ForeignObject", "RestrictedPickle", "admit", "restricted_pickle"]


class ForeignObject:
    """Stands for an object of a class that was not admitted: its state, and nothing else."""

    origin = ""

    def __new__(cls, *_: Any, **__: Any) -> ForeignObject:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        self.state: Any = None
        self.items: list[Any] = []
        self.mapping: dict[Any, Any] = {}

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.mapping[key] = value

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass
class Admission:
    """What one load may resolve.

    `extra` maps qualified names to classes (`--allow`, or a remap by `--model`).
    `salvage` makes inert records of unknown classes. `refused` collects the
    names that were not admitted, `missing` those whose class does not exist.
    """

    extra: Mapping[str, type] = field(default_factory=dict)
    salvage: bool = False
    foreign: dict[str, type[ForeignObject]] = field(default_factory=dict)

    def resolve(self, module: str, name: str) -> Any:
        qualified = canonical(module, name)
        if qualified in self.extra:
            return _without_code(self.extra[qualified], qualified)
        rank = standing(module, name)
        if rank == "safe":
            return _lookup(qualified)
        if rank == "library":
            return self._library_class(module, name, qualified)
        if rank == "unknown" and self.salvage:
            return self._foreign(qualified)
        raise pickle.UnpicklingError(f"{qualified} is not admitted ({rank})")

    def _library_class(self, module: str, name: str, qualified: str) -> Any:
        if qualified in WRAPPERS:
            return _wrapper(qualified)
        if qualified in WRAPPER_SETTINGS:
            return self._foreign(qualified)
        try:
            found = find_class(module, name)
        except (ImportError, AttributeError) as error:
            if self.salvage:
                return self._foreign(qualified)
            raise pickle.UnpicklingError(f"{qualified} does not exist here: {error}") from error
        if isinstance(found, type) and issubclass(found, (torch.nn.Module, enum.Enum, tuple)):
            return _without_code(found, qualified)
        if self.salvage:
            return self._foreign(qualified)
        raise pickle.UnpicklingError(f"{qualified} is no Module class")

    def _foreign(self, qualified: str) -> type[ForeignObject]:
        if qualified not in self.foreign:
            self.foreign[qualified] = type("Foreign", (ForeignObject,), {"origin": qualified})
        return self.foreign[qualified]


def _carries_code(found: type) -> bool:
    """Whether it descends from a class that compiles or loads code of its own."""
    places = ("torch.fx", "torch.jit", "torch.package")
    return any(f"{base.__module__}.".startswith(f"{p}.") for base in found.__mro__ for p in places)


def _without_code(found: type, qualified: str) -> type:
    if _carries_code(found):
        raise pickle.UnpicklingError(f"{qualified} carries code of its own (dangerous)")
    return found


@functools.cache
def _wrapper(qualified: str) -> type[torch.nn.Module]:
    """A Module of a wrapper's name that holds its `.module` and does nothing."""
    place, _, name = qualified.rpartition(".")
    return type(name, (torch.nn.Module,), {"__module__": place})


def find_class(module: str, name: str) -> Any:
    """Import `module` and walk `name` through classes only."""
    found: Any = importlib.import_module(module)
    for index, part in enumerate(name.split(".")):
        if index and not isinstance(found, type):
            raise AttributeError(f"{module}.{name} leads through something that is no class")
        found = getattr(found, part)
    return found


def admit(names: Iterable[str]) -> dict[str, type]:
    """The classes that `--allow` names, imported.

    Raises:
        UsageError: the name does not exist, is no class, or is one that runs code.
    """
    return {name: _admit_one(name) for name in names}


def _admit_one(name: str) -> type:
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"--allow {name}: not a class name", hint="write it as package.module.Class"
        )
    if standing(".".join(parts[:-1]), parts[-1]) == "dangerous":
        raise UsageError(
            f"--allow {name}: this can run code from the file, so it is never allowed",
            hint="if you trust whoever made the file, --trust loads it without any check",
        )
    failure: Exception | None = None
    for split in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:split])
        try:
            found = find_class(module, ".".join(parts[split:]))
        except ModuleNotFoundError as error:
            failure = failure or error
            continue
        except Exception as error:
            raise UsageError(
                f"--allow {name}: {type(error).__name__}: {error}",
                hint="check the class's name and that its module imports",
            ) from error
        if not isinstance(found, type):
            raise UsageError(
                f"--allow {name}: a {type(found).__name__}, not a class",
                hint="functions are never allowed: a file could call them; --trust loads the file",
            )
        if _carries_code(found):
            raise UsageError(
                f"--allow {name}: its objects carry code of their own, so it is never allowed",
                hint="if you trust whoever made the file, --trust loads it without any check",
            )
        return found
    raise UsageError(
        f"--allow {name}: {failure}",
        hint="run where the package can be imported, or set PYTHONPATH",
    )


@functools.cache
def _lookup(qualified: str) -> Any:
    """A safe global; every module here is torch's or the standard library's."""
    module, _, name = qualified.rpartition(".")
    if qualified in PURE_FUNCTIONS and module == "torch._C._VariableFunctions":
        return getattr(torch, name)
    found: Any = importlib.import_module("torch._C" if module == "torch._C._nn" else module)
    if module == "torch._C._nn":
        found = found._nn
    return getattr(found, name)


_SEQUENCES = (list, collections.deque)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_CALLABLE_NAMES = REBUILD_FUNCTIONS | SAFE_CLASSES


class _Unpickler(pickle._Unpickler):
    """pickle's own pure-Python unpickler with the four restrictions."""

    admission: Admission
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[..., Any]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self._callables: set[int] = {id(copyreg._reconstructor)}  # type: ignore[attr-defined]

    def find_class(self, module: str, name: str) -> Any:
        found = self.admission.resolve(module, name)
        if canonical(module, name) in _CALLABLE_NAMES or _is_callable_class(found):
            self._callables.add(id(found))
        return found

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        callee = self.stack[-1]
        self.stack[-1] = self._call(callee, arguments)

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._new(self.stack[-1], arguments, {})

    def load_newobj_ex(self) -> None:
        options = self.stack.pop()
        arguments = self.stack.pop()
        self.stack[-1] = self._new(self.stack[-1], arguments, options)

    def load_build(self) -> None:
        state = self.stack.pop()
        instance = self.stack[-1]
        if isinstance(instance, ForeignObject):
            instance.state = state
            return
        if isinstance(instance, (type, types.FunctionType, types.BuiltinFunctionType)):
            raise pickle.UnpicklingError("the pickle sets attributes of a class or function")
        # Looked up on the class: an attribute that the pickle set itself must not be called.
        set_state = getattr(type(instance), "__setstate__", None)
        if set_state is not None:
            set_state(instance, state)
            return
        attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
        instance.__dict__.update(attributes or {})
        for name, value in (slots or {}).items():
            object.__setattr__(instance, name, value)

    def load_append(self) -> None:
        value = self.stack.pop()
        self._container(_SEQUENCES).append(value)

    def load_appends(self) -> None:
        items = self.pop_mark()
        self._container(_SEQUENCES).extend(items)

    def load_additems(self) -> None:
        items = self.pop_mark()
        self._container((set,)).update(items)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._container(_MAPPINGS)[key] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        target = self._container(_MAPPINGS)
        for index in range(0, len(items), 2):
            target[items[index]] = items[index + 1]

    def _container(self, kinds: tuple[type, ...]) -> Any:
        target = self.stack[-1]
        if type(target) not in kinds and not isinstance(target, ForeignObject):
            raise pickle.UnpicklingError(f"the pickle stores items into {_describe(target)}")
        return target

    def refuse(self) -> None:
        raise pickle.UnpicklingError("the pickle uses an opcode that no checkpoint needs")

    def _instantiate(self, klass: Any, args: Any) -> None:
        self.append(self._call(klass, tuple(args)))

    def _call(self, callee: Any, arguments: Any) -> Any:
        if callee is copyreg._reconstructor:  # type: ignore[attr-defined]
            klass, base, state = arguments
            if base is object and state is None:
                return self._new(klass, (), {})
            raise pickle.UnpicklingError("the pickle rebuilds an object on a foreign base class")
        if isinstance(callee, type) and issubclass(callee, ForeignObject):
            return callee()
        if id(callee) not in self._callables:
            raise pickle.UnpicklingError(f"the pickle calls {_describe(callee)}")
        return callee(*arguments)

    def _new(self, klass: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not isinstance(klass, type):
            raise pickle.UnpicklingError(f"the pickle makes an object of {_describe(klass)}")
        if issubclass(klass, ForeignObject):
            return klass()
        if issubclass(klass, torch.nn.Module) and (arguments or options):
            raise pickle.UnpicklingError(f"the pickle hands arguments to {_describe(klass)}")
        return klass.__new__(klass, *arguments, **options)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    for _opcode in (pickle.EXT1, pickle.EXT2, pickle.EXT4):
        dispatch[_opcode[0]] = refuse


def _is_callable_class(found: Any) -> bool:
    """Classes whose call takes plain values: enum members and inert records."""
    return isinstance(found, type) and issubclass(found, (enum.Enum, ForeignObject))


def _describe(value: Any) -> str:
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return f"a {type(value).__name__}"


@dataclass(frozen=True)
class RestrictedPickle:
    """The three names that `torch.load` expects of a `pickle_module`."""

    Unpickler: type[Any]
    load: Callable[..., Any]
    __name__: str = "isomorph.restricted_pickle"


def restricted_pickle(admission: Admission) -> RestrictedPickle:
    """A `pickle_module` for `torch.load` that admits what `admission` admits."""
    unpickler = type("Unpickler", (_Unpickler,), {"admission": admission})

    def load(file: Any, **options: Any) -> Any:
        return unpickler(file, **options).load()

    return RestrictedPickle(unpickler, load)
