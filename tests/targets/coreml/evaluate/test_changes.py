"""Changed and damaged copies of a package.

A change of what it computes with changes what comes out, or is refused; a damaged copy fails as
an unreadable file or as unverifiable, or evaluates: never anything else.
"""

from __future__ import annotations

import operator
import os
import random
import resource
import runpy
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from isomorph.errors import InputFileError, UnverifiableError

small_package = runpy.run_path(str(Path(__file__).parent / "small_package.py"))
MODEL, WEIGHTS, FILES = (small_package[name] for name in ("MODEL", "WEIGHTS", "FILES"))
outputs, outcome, differs, spec_of, store, block_of = (
    small_package[name]
    for name in ("outputs", "outcome", "differs", "spec_of", "store", "block_of")
)
Change = Callable[[], Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("sound") / "net.mlpackage"
    small_package["write"](path)
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.mlpackage"
    shutil.copytree(sound, path)
    return path


def putting(values: Any, index: int, new: Any) -> Change:
    return lambda: operator.setitem(values, index, new)


WITHOUT_EFFECT = {
    "validate_indices": "decides what happens to indices out of bounds, of which there are none",
    "output_indices_dtype": "is about an output of topk that nothing reads",
    "return_indices": "is about an output of topk that nothing reads",
    "constant_val": "is ignored by the padding mode reflect",
}


def ways_to_change(value: Any) -> list[Change]:
    """Changes of one immediate constant of the specification, one an element."""
    held = value.immediateValue.tensor
    field = held.WhichOneof("value")
    if field not in ("bools", "ints", "floats", "strings"):
        return []
    values = getattr(held, field).values
    new = {
        "bools": lambda old: not old,
        "ints": lambda old: old + 1,
        "floats": lambda old: old * 1.5 + 100,
        "strings": lambda old: {"reflect": "replicate", "custom": "valid"}.get(old, "EXACT"),
    }[field]
    return [putting(values, index, new(old)) for index, old in enumerate(values)]


def test_every_argument_that_is_changed_is_seen(sound: Path, copy: Path) -> None:
    before, operations = outputs(sound), block_of(spec_of(sound)).operations
    read_as = {
        argument.name: key
        for operation in operations
        for key, given in operation.inputs.items()
        for argument in given.arguments
    }
    seen, missed = set(), set()
    for index, operation in enumerate(operations):
        if operation.type != "const":
            continue
        found = []
        for way in range(len(ways_to_change(operation.attributes["val"]))):
            spec = spec_of(sound)
            ways_to_change(block_of(spec).operations[index].attributes["val"])[way]()
            store(copy, spec)
            found.append(differs(copy, before))
        if found:
            (seen if any(found) else missed).add(read_as[operation.outputs[0].name])
    assert missed <= set(WITHOUT_EFFECT)
    assert {
        *("mode", "pad_type", "pad", "strides", "groups", "epsilon", "axes", "axis", "perm"),
        *("transpose_x", "transpose_y", "begin", "end", "stride", "begin_mask", "end_mask"),
        *("squeeze_mask", "shape", "k", "ascending", "alpha", "indices", "keep_dims", "y"),
    } <= seen


def test_every_weight_that_is_changed_is_seen(sound: Path, copy: Path) -> None:
    before, content = outputs(sound), (sound / WEIGHTS).read_bytes()
    (count,) = struct.unpack_from("<I", content)
    offset = 64
    for _ in range(count):
        size, start = struct.unpack_from("<QQ", content, offset + 8)
        for place in (start + 2, start + size // 16 * 4 + 2, start + size // 8 * 4 + 2):
            damaged = bytearray(content)
            damaged[place] ^= 0x40  # in the exponent, or high in the mantissa
            (copy / WEIGHTS).write_bytes(damaged)
            assert differs(copy, before), f"byte {place}"
        offset = (start + size + 63) // 64 * 64
    assert count == 4


def test_operations_that_are_changed_are_seen(sound: Path, copy: Path) -> None:
    before = outputs(sound)
    for index, operation in enumerate(block_of(spec_of(sound)).operations):
        if operation.type == "const":
            continue
        for kind in ("relu", "no_such_operator"):
            spec = spec_of(sound)
            block_of(spec).operations[index].type = kind
            store(copy, spec)
            assert differs(copy, before), operation.type
        spec = spec_of(sound)
        block_of(spec).operations[index].inputs["surprise"].CopyFrom(
            next(iter(operation.inputs.values()))
        )
        store(copy, spec)
        with pytest.raises((UnverifiableError, InputFileError)):
            outputs(copy)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Four more gigabytes of address space than now: whoever asks for more gets none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (4 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    at = chance.randrange(len(data))
    length = chance.choice((1, 2, 8, 100))
    kind = chance.randrange(6)
    if kind == 0:
        return bytes(data[:at])
    if kind == 1:
        data[at : at + length] = b""
    elif kind == 2:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == 3:
        data[at:at] = chance.randbytes(length)
    elif kind == 4:
        data[at : at + length] = b"\xff" * len(data[at : at + length])
    else:
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_fail_as_such_or_evaluate(sound: Path, copy: Path, name: str) -> None:
    content, chance = (sound / name).read_bytes(), random.Random(name)
    refused = 0
    for _ in range(150):
        (copy / name).write_bytes(damaged_bytes(content, chance))
        refused += outcome(copy) is None
    assert refused > (10 if name == WEIGHTS else 50)


NUMBERS = (0, -1, 1, 2, 7, 2**31 - 1, 2**40, 2**62, -(2**31))
TEXTS = ("", "x", "CoreML7", "CoreML99", "main", "../../etc/passwd", "@model_path/weights", "é\0")


def changes(message: Any, chance: random.Random, found: list[Change]) -> list[Change]:
    """Every way to change one field of a message, or of a message in it."""
    from google.protobuf.message import Message

    for field, value in message.ListFields():
        name = field.name
        if isinstance(value, Message):
            found.append(lambda m=message, n=name: m.ClearField(n))
            changes(value, chance, found)
        elif hasattr(value, "items"):  # a map
            for key in list(value):
                found.append(lambda v=value, k=key: v.pop(k))
                if isinstance(value[key], Message):
                    changes(value[key], chance, found)
        elif hasattr(value, "append") and not isinstance(value, str | bytes):
            found.append(lambda v=value: v.pop())
            for index, item in enumerate(value[:40]):
                if isinstance(item, Message):
                    found.append(lambda v=value, i=item: v.append(i))
                    changes(item, chance, found)
                else:
                    found.append(putting(value, index, other(item, chance)))
        else:
            found.append(partial(setattr, message, name, other(value, chance)))
    return found


def other(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice(NUMBERS)
    if isinstance(value, float):
        return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    return chance.choice(TEXTS) if isinstance(value, str) else chance.randbytes(5)


@pytest.mark.usefixtures("little_memory")
def test_a_damaged_specification_fails_as_such_or_evaluates(sound: Path, copy: Path) -> None:
    chance, refused, tried = random.Random(1), 0, 0
    total = len(changes(spec_of(sound), chance, []))
    for _ in range(300):
        spec = spec_of(sound)
        try:
            changes(spec, chance, [])[chance.randrange(total)]()
        except ValueError:  # a number that the field cannot hold
            continue
        store(copy, spec)
        tried += 1
        refused += outcome(copy) is None
    assert tried > 200
    assert refused > 100
