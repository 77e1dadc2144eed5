"""Read a pickle without running it: its globals, and what it would build.

The opcodes are interpreted over inert stand-ins: a global is its name, a call
is the pair of callee and arguments. Nothing is imported, called or allocated
beyond what the pickle's own bytes hold.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

__all__ = [
    "BoundedReader",
    "Call",
    "EndlessPickleError",
    "Global",
    "Pairs",
    "Persistent",
    "PickleError",
    "read_pickle",
]


class PickleError(ValueError):
    """The bytes are no complete pickle."""


class EndlessPickleError(PickleError):
    """Reading the pickle would take longer than anyone waits."""


@dataclass(frozen=True)
class Global:
    """A name that unpickling would look up by importing `module`."""

    module: str
    name: str


@dataclass(eq=False)
class Pairs:
    """A dict: its items in order (keys need not be hashable here)."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Call:
    """An object that unpickling would make by calling `callee` with `arguments`.

    `state` is what would be handed to its `__setstate__`; `pairs` and `elements`
    what would be stored into it.
    """

    callee: Any
    arguments: Any
    state: Any = None
    pairs: Pairs = field(default_factory=Pairs)
    elements: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Persistent:
    """A reference to something outside the pickle (torch: a storage)."""

    identity: Any


class BoundedReader:
    """A file that refuses to read more than is left of `limit` bytes.

    A pickle may claim a string of 2^60 bytes; reading it must fail, not allocate.
    """

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._left = limit

    def read(self, count: int = -1) -> bytes:
        if count < 0 or count > self._left:
            raise PickleError("the pickle claims more bytes than there are")
        data = self._file.read(count)
        self._left -= len(data)
        return data

    def readline(self) -> bytes:
        data = self._file.readline(min(self._left, 1 << 20))
        self._left -= len(data)
        return data

    def tell(self) -> int:
        return self._file.tell()


_MARK = object()
# A history of a million numbers takes a million opcodes; more takes longer than anyone waits.
_OPCODES = 2_000_000
# Tuples do not remember their hash: 40 that each hold the one before twice take 2^40 steps.
_KEY_NODES = 1_000
_UNKNOWN_OPCODES = ("EXT1", "EXT2", "EXT4")


def read_pickle(file: Any) -> tuple[Any, list[Global]]:
    """Interpret one pickle from `file`, up to and including its STOP.

    Returns:
        What it would build, and the globals that it names, in order of first use.

    Raises:
        EndlessPickleError: it is made to take for ever.
        PickleError: it is truncated or malformed.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > _OPCODES:
                raise EndlessPickleError(f"more than {_OPCODES} opcodes")
            machine.steps = count
            machine.step(opcode.name, argument)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise PickleError(f"damaged pickle: {error}") from error
    except RecursionError as error:
        raise PickleError("damaged pickle: nested too deeply") from error
    return machine.result, list(machine.globals)


class _Machine:
    """The unpickling machine over inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.globals: dict[Global, None] = {}
        self.result: Any = None
        self.steps = 0
        self._nodes: dict[int, tuple[Any, int]] = {}

    def _push_tuple(self, items: tuple[Any, ...]) -> None:
        """Push a tuple, unless sharing makes it far larger than the pickle that says it."""
        inner = sum(self._size(item) - 1 for item in items if type(item) in (tuple, Call))
        if inner:
            size = 1 + len(items) + inner
            if size > 4 * self.steps + _KEY_NODES:
                raise EndlessPickleError("tuples that share their parts without end")
            self._nodes[id(items)] = (items, size)
        self.stack.append(items)

    def _size(self, value: Any) -> int:
        """How many objects hashing `value` would visit."""
        if isinstance(value, Call):
            return 1 + self._size(value.arguments)
        if isinstance(value, Persistent):
            return 1 + self._size(value.identity)
        if not isinstance(value, tuple):
            return 1
        known = self._nodes.get(id(value))
        return known[1] if known else 1 + len(value)

    def _check_key(self, key: Any) -> None:
        if self._size(key) > _KEY_NODES:
            raise EndlessPickleError("a dict key or set item nested too deeply")

    def step(self, name: str, argument: Any) -> None:
        handler = getattr(self, f"_do_{name.lower()}", None)
        if handler is not None:
            handler(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _UNKNOWN_OPCODES:
            self._push_global(Global("copyreg", f"extension {argument}"))
        elif name not in ("PROTO", "FRAME", "READONLY_BUFFER"):
            self.stack.append(argument)

    def _push_global(self, found: Global) -> None:
        self.globals.setdefault(found)
        self.stack.append(found)

    def _pop_mark(self) -> list[Any]:
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise PickleError("damaged pickle: no mark on the stack")

    def _do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push_global(Global(module, name))

    def _do_stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            name, module = "computed name", "unknown"
        self._push_global(Global(module, name))

    def _do_inst(self, argument: str) -> None:
        arguments = tuple(self._pop_mark())
        self._do_global(argument)
        self.stack.append(Call(self.stack.pop(), arguments))

    def _do_obj(self, _: Any) -> None:
        callee, *arguments = self._pop_mark()
        self.stack.append(Call(callee, tuple(arguments)))

    def _do_reduce(self, _: Any) -> None:
        arguments, callee = self.stack.pop(), self.stack.pop()
        self.stack.append(Call(callee, arguments))

    _do_newobj = _do_reduce

    def _do_newobj_ex(self, _: Any) -> None:
        self.stack.pop()
        self._do_reduce(None)

    def _do_build(self, _: Any) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Call):
            self.stack[-1].state = state

    def _do_mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def _do_stop(self, _: Any) -> None:
        self.result = self.stack.pop()

    def _do_pop(self, _: Any) -> None:
        self.stack.pop()

    def _do_pop_mark(self, _: Any) -> None:
        self._pop_mark()

    def _do_dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def _do_tuple(self, _: Any) -> None:
        self._push_tuple(tuple(self._pop_mark()))

    def _do_tuple1(self, _: Any) -> None:
        self._push_tuple((self.stack.pop(),))

    def _do_tuple2(self, _: Any) -> None:
        last = self.stack.pop()
        self._push_tuple((self.stack.pop(), last))

    def _do_tuple3(self, _: Any) -> None:
        items = tuple(self.stack[-3:])
        del self.stack[-3:]
        self._push_tuple(items)

    def _do_empty_list(self, _: Any) -> None:
        self.stack.append([])

    _do_empty_set = _do_empty_list

    def _do_empty_dict(self, _: Any) -> None:
        self.stack.append(Pairs())

    def _do_list(self, _: Any) -> None:
        self.stack.append(self._pop_mark())

    def _do_frozenset(self, _: Any) -> None:
        self._do_list(None)
        for item in self.stack[-1]:
            self._check_key(item)

    def _do_dict(self, _: Any) -> None:
        items = self._pop_mark()
        self.stack.append(Pairs())
        self._store(items)

    def _do_append(self, _: Any) -> None:
        item = self.stack.pop()
        self._extend([item])

    def _do_appends(self, _: Any) -> None:
        self._extend(self._pop_mark())

    def _do_additems(self, _: Any) -> None:
        items = self._pop_mark()
        for item in items:
            self._check_key(item)
        self._extend(items)

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Call):
            target.elements.extend(items)

    def _do_setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._store([key, value])

    def _do_setitems(self, _: Any) -> None:
        self._store(self._pop_mark())

    def _store(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key in items[::2]:
            self._check_key(key)
        if isinstance(target, Pairs):
            target.items.extend(_pairwise(items))
        elif isinstance(target, Call):
            target.pairs.items.extend(_pairwise(items))

    def _do_put(self, argument: int) -> None:
        self.memo[argument] = self.stack[-1]

    _do_binput = _do_put
    _do_long_binput = _do_put

    def _do_memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _do_get(self, argument: int) -> None:
        self.stack.append(self.memo[argument])

    _do_binget = _do_get
    _do_long_binget = _do_get

    def _do_persid(self, argument: Any) -> None:
        # torch before 1.6 wrapped a module's class with its source: ("module", class, file, text).
        if isinstance(argument, tuple) and len(argument) > 1 and argument[0] == "module":
            self.stack.append(argument[1])
        else:
            self._check_key(argument)
            self.stack.append(Persistent(argument))

    def _do_binpersid(self, _: Any) -> None:
        self._do_persid(self.stack.pop())


_CONSTANTS: dict[str, Any] = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "EMPTY_TUPLE": (),
    "NEXT_BUFFER": None,
}


def _pairwise(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(items) % 2:
        raise PickleError("damaged pickle: a key without a value")
    return zip(items[::2], items[1::2], strict=True)
