"""Reading packages: sound ones, changed ones, damaged ones and hostile ones.

A damaged copy of a package fails as an unreadable file or as unverifiable, or evaluates; a change
of what it computes with changes what comes out.
"""

from __future__ import annotations

import json
import operator
import os
import random
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, IsomorphError, UnverifiableError
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.package import read_package
from isomorph.targets.coreml.quiet import coremltools

MODEL = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
FILES = ("Manifest.json", MODEL, WEIGHTS)
Change = Callable[[], Any]
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(1, 3, 6, 6)).astype(np.float32))


def build(mb: Any, x: Any) -> Any:
    """A small network in which every argument counts."""

    def weight(*shape: int) -> Any:
        return RNG.normal(size=shape).astype(np.float32)

    y = mb.conv(
        x=x, weight=weight(4, 3, 3, 3), bias=weight(4), strides=[1, 1], pad_type="custom",
        pad=[1, 1, 1, 1], dilations=[1, 1], groups=1,
    )  # fmt: skip
    y = mb.gelu(x=y, mode="TANH_APPROXIMATION")
    y = mb.pad(x=y, pad=[0, 0, 0, 0, 1, 0, 0, 1], mode="reflect")
    y = mb.slice_by_index(
        x=y, begin=[0, 0, 1, 1], end=[1, 3, 7, 7], stride=[1, 1, 1, 1],
        begin_mask=[False] * 4, end_mask=[False] * 4, squeeze_mask=[False] * 4,
    )  # fmt: skip
    y = mb.reshape(x=mb.transpose(x=y, perm=[0, 2, 3, 1]), shape=[1, 6, 18])
    y = mb.layer_norm(x=y, axes=[2], gamma=weight(18), beta=weight(18), epsilon=np.float32(0.1))
    z = mb.matmul(x=y, y=mb.reverse(x=y, axes=[1]), transpose_x=False, transpose_y=True)
    z = mb.softmax(x=mb.mul(x=z, y=np.float32(0.2)), axis=-1)
    values, _ = mb.topk(x=z, k=3, axis=2, ascending=False)
    low = mb.greater(x=mb.reduce_max(x=x, axes=[0, 1, 2, 3], keep_dims=False), y=0.0)
    scaled = mb.cond(
        pred=low, _true_fn=lambda: mb.mul(x=z, y=2.0), _false_fn=lambda: mb.identity(x=z)
    )
    linear = mb.linear(x=y, weight=weight(6, 18), bias=weight(6))
    picked = mb.gather(x=mb.add(x=linear, y=scaled), indices=[5, 0, 2], axis=1)
    return mb.concat(values=(picked, mb.leaky_relu(x=picked, alpha=0.3)), axis=2), values


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package written by coremltools' own exporter of ML Programs."""
    ct = coremltools()
    from coremltools.converters.mil.backend.mil.load import MILProtoExporter
    from coremltools.converters.mil.mil import Builder, Program, types
    from coremltools.converters.mil.mil import Function as MilFunction
    from coremltools.proto import Model_pb2

    path = tmp_path_factory.mktemp("sound") / "net.mlpackage"
    weights = path / "Data" / "com.apple.CoreML" / "weights"
    weights.mkdir(parents=True)
    places = {"x": Builder.placeholder(tuple(X.shape), types.fp32)}
    with MilFunction(places, opset_version=ct.target.iOS18) as function:
        function.set_outputs(list(build(Builder, function.inputs["x"])))
    program = Program()
    program.add_function("main", function)
    exporter = MILProtoExporter(program, str(weights), specification_version=9)
    model = Model_pb2.Model(specificationVersion=9, mlProgram=exporter.export())
    (path / MODEL).write_bytes(model.SerializeToString())
    entry = {"path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"itemInfoEntries": {"spec": entry}, "rootModelIdentifier": "spec"}
    (path / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    path = tmp_path / "copy.mlpackage"
    shutil.copytree(sound, path)
    return path


def outputs(path: Path) -> list[torch.Tensor]:
    package = read_package(path)
    function = package.program.functions[package.default_function]
    return list(run_function(function, {port.name: X for port in function.inputs}).values())


def spec_of(path: Path) -> Any:
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model()
    spec.ParseFromString((path / MODEL).read_bytes())
    return spec


def store(path: Path, spec: Any) -> None:
    (path / MODEL).write_bytes(spec.SerializeToString())


def block_of(spec: Any) -> Any:
    return spec.mlProgram.functions["main"].block_specializations["CoreML8"]


def outcome(path: Path) -> list[torch.Tensor] | None:
    """What it computes; None where it is refused in one of the two ways that are allowed."""
    try:
        return outputs(path)
    except (InputFileError, UnverifiableError) as error:
        if not error.message or not error.hint:
            raise
        return None


def differs(path: Path, before: list[torch.Tensor]) -> bool:
    after = outcome(path)
    return after is None or any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(before, after, strict=True)
    )


def test_a_sound_package_evaluates(sound: Path) -> None:
    joined, values = outputs(sound)
    assert joined.shape == (1, 3, 12)
    assert values.shape == (1, 6, 3)
    assert len(set(joined.reshape(-1).tolist())) > 20


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
    for _ in range(500):
        spec = spec_of(sound)
        try:
            changes(spec, chance, [])[chance.randrange(total)]()
        except ValueError:  # a number that the field cannot hold
            continue
        store(copy, spec)
        tried += 1
        refused += outcome(copy) is None
    assert tried > 300
    assert refused > 150


@pytest.mark.parametrize("name", FILES)
def test_missing_and_empty_files(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"")
    with pytest.raises(InputFileError):
        outputs(copy)
    (copy / name).unlink()
    with pytest.raises(InputFileError):
        outputs(copy)
    (copy / name).mkdir()
    with pytest.raises(InputFileError):
        outputs(copy)


@pytest.mark.parametrize("name", [MODEL, WEIGHTS])
def test_a_pipe_is_not_waited_for(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(InputFileError):
        outputs(copy)


@pytest.mark.parametrize(
    "entry",
    ["../../net.mlmodel", "/etc/passwd", "", ".", "a\0b", "x" * 5000, None, 7, ["a"], "com.apple"],
)
def test_a_manifest_that_names_no_file_of_the_package(copy: Path, entry: Any) -> None:
    document = {"itemInfoEntries": {"a": {"path": entry}}, "rootModelIdentifier": "a"}
    (copy / "Manifest.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputFileError):
        read_package(copy)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '{"itemInfoEntries": []}', "[" * 100_000, "\ufeff{}"]
)
def test_a_manifest_that_is_none(copy: Path, text: str) -> None:
    (copy / "Manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputFileError, match="names no model"):
        read_package(copy)
    (copy / "Manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError):
        read_package(copy)


@pytest.mark.parametrize("name", [MODEL, WEIGHTS])
def test_links_that_lead_out_of_the_package_are_refused(sound: Path, copy: Path, name: str) -> None:
    (copy / name).unlink()
    (copy / name).symlink_to(sound / name)
    with pytest.raises(InputFileError, match="leads out"):
        outputs(copy)
    (copy / name).unlink()
    (copy / name).symlink_to(copy / name)  # in a circle
    with pytest.raises(InputFileError):
        outputs(copy)


def test_a_package_that_is_itself_behind_a_link_is_read(sound: Path, tmp_path: Path) -> None:
    (tmp_path / "link.mlpackage").symlink_to(sound)
    assert len(outputs(tmp_path / "link.mlpackage")) == 2


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "@model_path/../../../x", "weights/weight.bin", "@model_path/", ""]
)
def test_weights_outside_the_package_are_refused(copy: Path, name: str) -> None:
    spec = spec_of(copy)
    for operation in block_of(spec).operations:
        value = operation.attributes["val"]
        if value.HasField("blobFileValue"):
            value.blobFileValue.fileName = name
    store(copy, spec)
    with pytest.raises(InputFileError):
        read_package(copy)


def test_other_kinds_of_model(copy: Path, tmp_path: Path) -> None:
    spec = spec_of(copy)
    spec.neuralNetwork.SetInParent()
    store(copy, spec)
    with pytest.raises(InputFileError, match="neuralNetwork where an ML Program"):
        read_package(copy)
    spec.ClearField("neuralNetwork")
    store(copy, spec)
    with pytest.raises(InputFileError, match="no model"):
        read_package(copy)
    spec.mlProgram.SetInParent()
    store(copy, spec)
    with pytest.raises(InputFileError, match="without functions"):
        read_package(copy)
    with pytest.raises(InputFileError, match="does not exist"):
        read_package(tmp_path / "none.mlpackage")
    with pytest.raises(InputFileError, match="is a file"):
        read_package(copy / MODEL)


def test_an_operator_set_that_is_newer_is_unverifiable_and_one_that_is_none_is_damage(
    copy: Path,
) -> None:
    spec = spec_of(copy)
    main = spec.mlProgram.functions["main"]
    main.block_specializations["CoreML12"].CopyFrom(block_of(spec))
    main.opset = "CoreML12"
    store(copy, spec)
    with pytest.raises(UnverifiableError, match="CoreML12"):
        read_package(copy)
    for opset in ("", "CoreML", "CoreML²", "CoreML-8", "TensorFlow8"):
        main.block_specializations[opset].SetInParent()
        main.opset = opset
        store(copy, spec)
        with pytest.raises(InputFileError, match="operator set"):
            read_package(copy)


def test_nesting_without_end(copy: Path) -> None:
    spec = spec_of(copy)
    block = block_of(spec)
    for _ in range(300):
        inner = block.operations.add(type="cond").blocks.add()
        block = inner
    try:
        store(copy, spec)
    except (ValueError, RecursionError):
        pytest.skip("protobuf writes no message this deep")
    assert outcome(copy) is None


@pytest.mark.parametrize(
    ("dtype", "field", "values"),
    [
        ("INT32", "floats", [1.7]),  # would be cut to 1
        ("FLOAT32", "ints", [1]),
        ("INT8", "ints", [1]),
        ("STRING", "strings", []),
        ("STRING", "ints", [1]),
        ("INT32", "ints", [1, 2]),
        ("UNUSED_TYPE", "ints", [1]),
        ("FLOAT8E4M3FN", "floats", [1.0]),
        ("BOOL", "ints", [1]),
        ("FLOAT16", "bytes", b"abc"),
        ("UINT3", "bytes", b""),
    ],
)
def test_constants_that_do_not_hold_what_they_say(
    copy: Path, dtype: str, field: str, values: Any
) -> None:
    from coremltools.proto import MIL_pb2

    spec = spec_of(copy)
    value = block_of(spec).operations.add(type="const").attributes["val"]
    value.type.tensorType.dataType = MIL_pb2.DataType.Value(dtype)
    held = getattr(value.immediateValue.tensor, field)
    held.SetInParent()
    if field == "bytes":
        held.values = values
    else:
        held.values.extend(values)
    store(copy, spec)
    with pytest.raises(InputFileError, match="constant"):
        read_package(copy)


@pytest.mark.parametrize("sizes", [[2**63], [2**40, 2**40], [0, 2**63], [2**32, 2**32]])
def test_shapes_beyond_reason(copy: Path, sizes: list[int]) -> None:
    for kept in (True, False):
        spec = spec_of(copy)
        found = [op for op in block_of(spec).operations if op.type == "const"]
        value = next(
            op.attributes["val"]
            for op in found
            if op.attributes["val"].HasField("blobFileValue") == kept
        )
        value.type.tensorType.rank = len(sizes)
        del value.type.tensorType.dimensions[:]
        for size in sizes:
            value.type.tensorType.dimensions.add().constant.size = size
        store(copy, spec)
        with pytest.raises(InputFileError):
            outputs(copy)


def test_errors_carry_what_to_do(copy: Path) -> None:
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-8])
    with pytest.raises(IsomorphError) as caught:
        outputs(copy)
    assert caught.value.exit_code == 5
    assert "truncated" in caught.value.message
