"""`inspect` tells what a file holds without torch, without running it, and survives garbage."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isomorph.errors import InputFileError
from isomorph.exporter.inspection import StoredTensor, inspect
from torch import nn

STATE = {
    "a.weight": torch.ones(2, 3),
    "a.half": torch.ones(4, dtype=torch.bfloat16),
    "count": torch.tensor(3),
    "mask": torch.ones(2, dtype=torch.bool),
}
TENSORS = {
    StoredTensor("a.weight", "float32", (2, 3)),
    StoredTensor("a.half", "bfloat16", (4,)),
    StoredTensor("count", "int64", ()),
    StoredTensor("mask", "bool", (2,)),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_tensors_of_a_state_dict(zipped: bool, protocol: int, tmp_path: Path) -> None:
    torch.save(
        STATE,
        tmp_path / "m.pt",
        _use_new_zipfile_serialization=zipped,
        pickle_protocol=protocol,
    )

    found = inspect(tmp_path / "m.pt")

    assert found.format == ("torch_zip" if zipped else "torch_legacy")
    assert set(found.tensors) == TENSORS
    assert found.bytes == (tmp_path / "m.pt").stat().st_size
    assert not [name for name, rank in found.globals if rank != "safe"]
    assert "--model" in found.suggestion


def test_tensors_of_safetensors_torchscript_and_pt2(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    linear = nn.Linear(3, 2)
    save_file(linear.state_dict(), tmp_path / "m.safetensors", {"epoch": "3"})
    torch.jit.script(linear).save(str(tmp_path / "m.ts"))
    torch.export.save(torch.export.export(linear, (torch.ones(2, 3),)), tmp_path / "m.pt2")
    expected = {StoredTensor("weight", "float32", (2, 3)), StoredTensor("bias", "float32", (2,))}

    for name, kind in (("safetensors", "safetensors"), ("ts", "torchscript"), ("pt2", "pt2")):
        found = inspect(tmp_path / f"m.{name}")
        assert found.format == kind
        assert set(found.tensors) == expected


def test_entries_of_a_training_dict(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "name": "run", "net": STATE, "list": [1, 2]}, tmp_path / "m.pt")

    assert dict(inspect(tmp_path / "m.pt").entries) == {
        "epoch": "3",
        "name": "'run'",
        "net": "state_dict of 4 tensors",
        "list": "list of 2",
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickled_module_shows_its_class_and_globals(zipped: bool, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 3))
    torch.save(module, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)

    found = inspect(tmp_path / "m.pt")

    assert found.root_class == "torch.nn.modules.container.Sequential"
    assert "torch.nn.modules.linear.Linear" in found.named("library")
    assert StoredTensor("0.weight", "float32", (3, 2)) in found.tensors
    assert found.suggestion.endswith("m.pt -i 1x2")


SCRIPT = """
import torch
from torch import nn
class Block(nn.Module):
    pass
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Block(), nn.Conv2d(3, 4, 5)
torch.save(WRAP(Net()), "m.pt")
"""


@pytest.mark.parametrize("wrap", ["", "nn.DataParallel"])
def test_classes_of_a_script_are_taken_from_that_script(wrap: str, tmp_path: Path) -> None:
    """`--allow __main__.Net` could not work: no import finds it."""
    code = SCRIPT.replace("WRAP", wrap)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)

    found = inspect(tmp_path / "m.pt")

    assert found.root_class == "__main__.Net"
    assert found.suggestion.endswith("m.pt --model path/to/file.py:Net -i 1x3x224x224")
    assert any("wrapped in DataParallel" in note for note in found.notes) is bool(wrap)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ({"conv": nn.Conv2d(5, 2, 3)}, "1x5x224x224"),
        ({"conv": nn.Conv1d(5, 2, 3), "fc": nn.Linear(9, 2)}, "1x5x1000"),
        ({"norm": nn.BatchNorm2d(3), "fc": nn.Linear(9, 2)}, "1x9"),
        ({"embed": nn.Embedding(7, 2)}, "1x16:int64:0..6"),
        ({"rnn": nn.LSTM(6, 2)}, "1x10x6"),
        ({"norm": nn.LayerNorm(3)}, "SHAPE"),
    ],
    ids=str,
)
def test_the_suggested_input_fits_the_first_weight(
    layers: dict[str, nn.Module], shape: str, tmp_path: Path
) -> None:
    torch.save(nn.ModuleDict(layers).state_dict(), tmp_path / "m.pt")

    assert inspect(tmp_path / "m.pt").suggestion.endswith(f"file.py:Class -i {shape}")


def test_torchscript_needs_an_input_and_names_nothing_dangerous(tmp_path: Path) -> None:
    module = nn.Conv2d(3, 2, 3, padding=[1, 1])  # its lists go through torch.jit._pickle
    torch.jit.script(module).save(str(tmp_path / "m.pt"))

    found = inspect(tmp_path / "m.pt")

    assert b"torch.jit._pickle" in zipfile.ZipFile(tmp_path / "m.pt").read("m/data.pkl")
    assert found.suggestion.endswith("m.pt -i 1x3x224x224")
    assert found.named("dangerous") == []


@pytest.mark.parametrize(
    ("kind", "nested"),
    [(torch.optim.SGD, False), (torch.optim.AdamW, False), (torch.optim.AdamW, True)],
)
def test_an_optimizers_state_is_no_model(kind: Any, nested: bool, tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    optimizer = kind(layer.parameters(), lr=0.1, weight_decay=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    torch.save({"epoch": 1, "optimizer": state} if nested else state, tmp_path / "m.pt")

    found = inspect(tmp_path / "m.pt")

    assert "this is an optimizer's state, not a model" in found.notes
    assert found.suggestion == ""


def test_unknown_and_dangerous_globals_are_told_apart(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02cshop\nNet\n)\x81cposix\nsystem\n\x86.")

    found = inspect(tmp_path / "m.pt")

    assert found.named("unknown") == ["shop.Net"]
    assert found.named("dangerous") == ["posix.system"]
    assert found.suggestion == ""


def test_a_name_computed_by_the_pickle_is_dangerous(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x04)\x8c\x06system\x93)R.")

    assert inspect(tmp_path / "m.pt").named("dangerous")


def test_it_becomes_json(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "net": STATE}, tmp_path / "m.pt")

    document = json.loads(json.dumps(inspect(tmp_path / "m.pt").to_json()))

    assert {"name": "net.a.weight", "dtype": "float32", "shape": [2, 3]} in document["tensors"]


def test_it_imports_no_torch(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "m.pt")
    code = (
        "import sys\nfrom isomorph.exporter.inspection import inspect\n"
        "assert inspect(sys.argv[1]).tensors\n"
        "assert not {'torch', 'numpy', 'onnx', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.pt")], check=True)


def test_tensor_data_is_not_read(tmp_path: Path) -> None:
    """A sparse legacy file of 2 GB is read by its first kilobytes."""
    path = tmp_path / "m.pt"
    torch.save({"w": torch.ones(8)}, path, _use_new_zipfile_serialization=False)
    with path.open("r+b") as file:
        file.truncate(2 << 30)

    read = _bytes_read_by(lambda: inspect(path))

    assert inspect(path).tensors == (StoredTensor("w", "float32", (8,)),)
    assert read is None or read < 1 << 20


def _bytes_read_by(action: Any) -> int | None:
    counter = Path("/proc/self/io")
    if not counter.exists():
        return None

    def count() -> int:
        return int(counter.read_text().split()[1])

    before = count()
    action()
    return count() - before


# Garbage

CLAIMS = {
    "8-byte length": b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + b"x.",
    "4-byte length": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "long integer": b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
    "frame": b"\x80\x04\x95" + (1 << 62).to_bytes(8, "little") + b"N.",
    "no stop": b"\x80\x02]q\x00",
    "pop of nothing": b"\x80\x020.",
    "no mark": b"\x80\x02t.",
    "unknown memo": b"\x80\x02h\x07.",
    "list in itself": b"\x80\x02]q\x00h\x00a.",
    "dict in itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "doubling tuples": b"\x80\x02)" + b"q\x00h\x00\x86" * 400 + b".",
    "deep nesting": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "key without value": b"\x80\x02}(K\x01u.",
    "bad integer": b"I12x4\n.",
    "bad text": b"\x80\x02X\x02\x00\x00\x00\xff\xfe.",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_malformed_pickle_is_read_or_refused(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", CLAIMS[name])

    with contextlib.suppress(InputFileError):
        json.dumps(inspect(tmp_path / "m.pt").to_json())


def test_a_bomb_in_the_archive_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        bomb = b"\x80\x02" + b"N0" * (150 << 20)
        archive.writestr("m/data.pkl", b"\x80\x04\x8e" + len(bomb).to_bytes(8, "little") + bomb)

    with pytest.raises(InputFileError, match="claims more bytes"):
        inspect(tmp_path / "m.pt")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("samples")
    module = nn.Sequential(nn.Linear(2, 3))
    torch.save({"epoch": 1, "net": STATE}, folder / "zip")
    torch.save(module, folder / "legacy", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(2),)), folder / "pt2")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damage_never_ends_in_a_traceback(
    data: st.DataObject, samples: dict[str, bytes], tmp_path: Path
) -> None:
    content = bytearray(samples[data.draw(st.sampled_from(sorted(samples)))])
    edits = data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
    )
    for position, value in edits:
        content[position] = value
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path / "m.pt"
    path.write_bytes(content[:cut] if data.draw(st.booleans()) else content)

    with contextlib.suppress(InputFileError):
        json.dumps(inspect(path).to_json())


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(max_size=300), head=st.sampled_from([b"", b"\x80\x02", b"\x80\x04", b"{"]))
def test_random_bytes_never_end_in_a_traceback(content: bytes, head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(head + content)
    with zipfile.ZipFile(tmp_path / "z.pt", "w") as archive:
        archive.writestr("m/data.pkl", head + content)

    for file in (path, tmp_path / "z.pt"):
        with contextlib.suppress(InputFileError):
            json.dumps(inspect(file).to_json())


def test_a_plain_pickle_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_bytes(pickle.dumps({"a": 1}))

    assert inspect(tmp_path / "m.pkl").format == "pickle"


def test_a_cut_zip_is_to_be_fetched_again(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "m.pt")
    (tmp_path / "m.pt").write_bytes((tmp_path / "m.pt").read_bytes()[:-200])

    found = inspect(tmp_path / "m.pt")

    assert "cut off" in found.looks_like
    assert any("download or save it again" in note for note in found.notes)
