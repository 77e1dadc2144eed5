"""What a checkpoint cannot mean is refused by name, and the code it needs leaks nothing."""

from __future__ import annotations

import copyreg
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.exporter.architecture import build
from isomorph.exporter.checkpoint import load_checkpoint
from isomorph.exporter.inspection import inspect
from torch import nn

LINEAR = "torch.nn:Linear(2,2,bias=False)"


def saved(value: Any, tmp_path: Path) -> Path:
    torch.save(value, tmp_path / "m.pt")
    return tmp_path / "m.pt"


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.complex64, torch.int8, torch.uint8, torch.int32, torch.bool),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    ],
    ids=str,
)
def test_weights_whose_values_would_change_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    path = saved({"weight": torch.ones(2, 2).to(dtype)}, tmp_path)

    with pytest.raises(InputFileError, match=r"weight is .* where the module has float32"):
        load_checkpoint(path, model=LINEAR)


def test_weights_too_large_for_the_modules_dtype_are_refused(tmp_path: Path) -> None:
    path = saved({"weight": torch.full((2, 2), 1e300, dtype=torch.float64)}, tmp_path)

    with pytest.raises(InputFileError, match="weight is float64"):
        load_checkpoint(path, model=LINEAR)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: torch.ones(2, 2, device="meta"), "meta"),
        (lambda: torch.eye(2).to_sparse(), "sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8), "quantized"),
    ],
    ids=["meta", "coo", "csr", "quantized"],
)
def test_tensors_that_cannot_be_weights_are_named(
    made: Callable[[], torch.Tensor], said: str, tmp_path: Path
) -> None:
    path = saved({"weight": made()}, tmp_path)

    with pytest.raises(InputFileError, match=rf"weight is a .*{said}"):
        load_checkpoint(path, model=LINEAR)


def test_a_buffer_that_cannot_be_a_weight_is_named_in_a_pickled_module(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("graph", torch.eye(2).to_sparse())

    with pytest.raises(InputFileError, match="graph is a sparse tensor"):
        load_checkpoint(saved(module, tmp_path))


def test_a_nested_tensor_is_described_and_refused(tmp_path: Path) -> None:
    path = saved({"weight": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}, tmp_path)

    with pytest.raises(InputFileError):
        load_checkpoint(path, model=LINEAR)
    with pytest.raises(InputFileError):
        load_checkpoint(path)


class Unset:
    """Pickles as an `nn.Linear` that never got its attributes."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def __reduce__(self) -> Any:
        made = (copyreg._reconstructor, (nn.Linear, object, None))  # type: ignore[attr-defined]
        return made if self.state is None else (*made, self.state)


@pytest.mark.parametrize("model", [None, LINEAR], ids=["alone", "with --model"])
@pytest.mark.parametrize("state", [None, {}, {"a": 1}], ids=["none", "empty", "other"])
def test_a_module_without_its_attributes_is_an_input_error(
    state: Any, model: str | None, tmp_path: Path
) -> None:
    with pytest.raises(InputFileError):
        load_checkpoint(saved(Unset(state), tmp_path), model=model)


def test_a_module_whose_code_is_in_the_pickle_is_refused(tmp_path: Path) -> None:
    from torchvision.models.feature_extraction import create_feature_extractor

    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    graph = create_feature_extractor(net, ["0"])
    dual = copyreg._reconstructor, (type(graph).__mro__[1], object, None), {}  # type: ignore[attr-defined]
    path = saved(Reduces(dual), tmp_path)

    with pytest.raises(InputFileError, match="refused"):
        load_checkpoint(path)


class Reduces:
    def __init__(self, reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


class OwnGraph(torch.fx.GraphModule):
    """A GraphModule elsewhere: its name alone says nothing."""


class OwnScript(torch.jit.ScriptModule):
    pass


@pytest.mark.parametrize("kind", [OwnGraph, OwnScript])
def test_allow_never_admits_classes_that_carry_code(kind: type, tmp_path: Path) -> None:
    path = saved({"weight": torch.ones(2, 2)}, tmp_path)

    with pytest.raises(UsageError, match="code of their own"):
        load_checkpoint(path, model=LINEAR, allow=[f"{kind.__module__}.{kind.__name__}"])


def doubled(levels: int) -> Any:
    value: Any = ()
    for _ in range(levels):
        value = (value, value)
    return value


class Keyed:
    """Pickles as a dict with a key that would take 2^40 steps to hash."""

    def __reduce__(self) -> Any:
        return (dict, (), None, None, iter([(doubled(40), 1)]))


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_key_that_cannot_be_hashed_is_refused(zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(Keyed(), path, _use_new_zipfile_serialization=zipped)

    with pytest.raises(InputFileError, match="refused"):
        inspect(path)
    with pytest.raises(InputFileError, match="refused"):
        load_checkpoint(path, model=LINEAR)


def test_tuples_that_share_little_are_read(tmp_path: Path) -> None:
    path = saved({"weight": torch.ones(2, 2), "shapes": {doubled(4): 1}}, tmp_path)

    assert [tensor.name for tensor in inspect(path).tensors] == ["weight"]


@pytest.mark.parametrize("content", [b"N0" * (40 << 20), b"]" + b"Na" * (10 << 20)])
def test_a_pickle_of_endless_opcodes_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + content + b".")
        archive.writestr("m/version", b"3")

    with pytest.raises(InputFileError, match="opcodes"):
        inspect(path)


LEAKS = {
    "dtype": "torch.set_default_dtype(torch.float64)",
    "device": "torch.set_default_device('meta')",
    "folder": "os.chdir('/')",
    "seed": "torch.manual_seed(7), random.seed(7)",
    "grad": "torch.set_grad_enabled(False)",
}


def settings() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.empty(0).device,
        torch.utils._device.CURRENT_DEVICE,
        Path.cwd(),
        torch.is_grad_enabled(),
        torch.initial_seed(),
        torch.get_rng_state().tolist(),
        random.getstate(),
    )


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("leak", LEAKS)
def test_a_factory_changes_nothing_for_the_rest(
    leak: str, fails: bool, device: str, tmp_path: Path
) -> None:
    after = "raise ValueError" if fails else "return torch.nn.Linear(2, 2)"
    code = f"import os, random, torch\ndef make():\n    {LEAKS[leak]}\n    {after}\n"
    (tmp_path / "factory.py").write_text(code)
    before = settings()

    if fails:
        with pytest.raises(UsageError):
            build(f"{tmp_path}/factory.py:make", device=device)
    else:
        build(f"{tmp_path}/factory.py:make", device=device)

    assert settings() == before


def test_a_file_changes_neither_device_nor_folder(tmp_path: Path) -> None:
    lines = ("import os, random, torch", LEAKS["device"], LEAKS["folder"], LEAKS["seed"])
    (tmp_path / "top.py").write_text("\n".join((*lines, "Net = torch.nn.ReLU")))
    before = settings()

    build(f"{tmp_path}/top.py:Net")

    assert settings() == before


@pytest.mark.parametrize("where", ["top", "factory"])
def test_any_exception_of_the_users_code_is_a_usage_error(where: str, tmp_path: Path) -> None:
    raising = "class Odd(BaseException): pass\n"
    raising += "raise Odd" if where == "top" else "def make(): raise Odd"
    (tmp_path / f"odd_{where}.py").write_text(raising)

    with pytest.raises(UsageError, match="Odd"):
        build(f"{tmp_path}/odd_{where}.py:make")


@pytest.mark.parametrize(
    "spec",
    [
        "torch.nn:Linear(in_features=1,in_features=2)",
        "torch.nn:Linear(**{'a': 1})",
        "torch.nn:Linear({[]: 1})",
        f"torch.nn:Linear({'-' * 5000}1)",
        f"torch.nn:Linear({'(' * 5000}1)",
        f"{'x' * 300}.py:Net",
        f"{'x' * 300}.py",
    ],
    ids=["twice", "stars", "unhashable", "minus", "braces", "long name", "long name alone"],
)
def test_an_odd_specification_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError):
        build(spec)


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_file_that_exhausts_the_parser_is_a_usage_error(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: Any, **__: Any) -> None:
        raise error

    (tmp_path / "deep.py").write_text("x = 1")
    monkeypatch.setattr("isomorph.exporter.script_slice.ast.parse", parse)

    with pytest.raises(UsageError):
        build(f"{tmp_path}/deep.py:x")


def test_a_deeply_nested_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("x = " + "-" * 50_000 + "1")

    with pytest.raises(UsageError):
        build(f"{tmp_path}/deep.py:x")


def test_a_model_file_that_may_not_be_read_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret.py").write_text("x = 1")
    monkeypatch.setattr(Path, "read_bytes", refuse)

    with pytest.raises(UsageError, match="Permission denied"):
        build(f"{tmp_path}/secret.py:x")


HEADERS = {
    "shape null": {"a": {"dtype": "F32", "shape": None, "data_offsets": [0, 0]}},
    "dtype list": {"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
    "metadata list": {"__metadata__": [1]},
    "metadata null": {"__metadata__": None},
    "infinite": {"a": {"dtype": "F32", "shape": [float("inf")], "data_offsets": [0, 4]}},
    "entry list": {"a": [1]},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_malformed_safetensors_header_is_an_input_error(header: Any, tmp_path: Path) -> None:
    text = json.dumps(header).replace("Infinity", "1e999").encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text)

    with pytest.raises(InputFileError):
        inspect(path)
    with pytest.raises(InputFileError):
        load_checkpoint(path, model=LINEAR)


TABLES = {
    "list": "[]",
    "integer entry": '{"config": {"x": 5}}',
    "config list": '{"config": [1]}',
    "integer sizes": '{"config": {"x": {"tensor_meta": {"sizes": [1, 2], "dtype": 7}}}}',
    "sizes null": '{"config": {"x": {"tensor_meta": {"sizes": null}}}}',
    "infinite": '{"config": {"x": {"tensor_meta": {"sizes": [{"as_int": 1e999}]}}}}',
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_malformed_table_in_a_pt2_is_an_input_error(table: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/models/model.json", "{}")
        archive.writestr("m/data/weights/model_weights_config.json", table)

    with pytest.raises(InputFileError):
        inspect(path)


def test_torchscript_that_fails_when_its_graphs_are_read_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("bit flipped")

    path = tmp_path / "m.ts"
    torch.jit.script(nn.Linear(2, 2)).save(str(path))
    monkeypatch.setattr("isomorph.exporter.programs._vet_graphs", fail)

    with pytest.raises(InputFileError, match="bit flipped"):
        load_checkpoint(path)


def test_suggested_files_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sp ace.pt", "-dash.pt"):
        torch.save({"weight": torch.ones(2, 2)}, name)

    with pytest.raises(InputFileError, match=r"\./-dash\.pt, 'sp ace\.pt'"):
        inspect("missing.pt")
    assert " 'sp ace.pt' " in inspect("sp ace.pt").suggestion
    assert " ./-dash.pt " in inspect("-dash.pt").suggestion
