"""Reading packages: sound ones, and files that are missing, hostile, or contradict themselves."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from isomorph.errors import InputFileError, IsomorphError, UnverifiableError
from isomorph.targets.coreml.evaluate.package import read_package

small_package = runpy.run_path(str(Path(__file__).parent / "small_package.py"))
MODEL, WEIGHTS, FILES = (small_package[name] for name in ("MODEL", "WEIGHTS", "FILES"))
outputs, outcome, spec_of, store, block_of = (
    small_package[name] for name in ("outputs", "outcome", "spec_of", "store", "block_of")
)


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


def test_a_sound_package_evaluates(sound: Path) -> None:
    joined, values = outputs(sound)
    assert joined.shape == (1, 3, 12)
    assert values.shape == (1, 6, 3)
    assert len(set(joined.reshape(-1).tolist())) > 20


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


def test_a_rank_that_is_not_that_of_its_sizes(copy: Path) -> None:
    spec = spec_of(copy)
    block_of(spec).operations[-1].outputs[0].type.tensorType.rank += 1
    store(copy, spec)
    with pytest.raises(InputFileError, match="rank 4 has 3 sizes"):
        read_package(copy)


def test_errors_carry_what_to_do(copy: Path) -> None:
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:-8])
    with pytest.raises(IsomorphError) as caught:
        outputs(copy)
    assert caught.value.exit_code == 5
    assert "truncated" in caught.value.message
