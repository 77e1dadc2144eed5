"""A hostile file is refused, and nothing in it ran: each payload would leave a canary file."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import json
import os
import pickle
import runpy
import subprocess
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.exporter import programs
from isomorph.exporter.checkpoint import load_checkpoint
from isomorph.exporter.inspection import inspect
from torch import nn


class Calls:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def touch(canary: Path) -> Calls:
    return Calls(os.system, f"touch {canary}")


def script(canary: Path) -> str:
    path = canary.with_name("evil.py")
    path.write_text(f"open({str(canary)!r}, 'w').close()")
    return str(path)


def in_module(canary: Path) -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.__dict__["hidden"] = touch(canary)
    return layer


def in_set_state(canary: Path) -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.__dict__["__setstate__"] = functools.partial(os.system, f"touch {canary}")
    return layer


PAYLOADS: dict[str, Callable[[Path], Any]] = {
    "os.system": touch,
    "eval": lambda c: Calls(builtins.eval, f"open({str(c)!r}, 'w')"),
    "exec": lambda c: Calls(builtins.exec, f"open({str(c)!r}, 'w')"),
    "open": lambda c: Calls(builtins.open, str(c), "w"),
    "getattr": lambda c: Calls(builtins.getattr, touch(c), "real"),
    "subprocess": lambda c: Calls(subprocess.call, ["touch", str(c)]),
    "runpy": lambda c: Calls(runpy.run_path, script(c)),
    "nested": lambda c: {"model": {"weight": torch.ones(2)}, "extra": [1, (2, {"x": touch(c)})]},
    "in a module": in_module,
    "in __setstate__": in_set_state,
    "partial": lambda c: functools.partial(os.system, f"touch {c}"),
    "torch.hub": lambda c: Calls(torch.hub._load_local, str(c.parent), "evil"),
    "storage bytes": lambda c: Calls(torch.storage._load_from_bytes, pickle.dumps(touch(c))),
    "torch.jit": lambda c: Calls(torch.jit.load, script(c)),
}


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_runs_code_is_refused_unrun(
    name: str, zipped: bool, protocol: int, canary: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    torch.save(
        PAYLOADS[name](canary),
        path,
        _use_new_zipfile_serialization=zipped,
        pickle_protocol=protocol,
    )

    for model in (None, "torchvision:resnet18"):
        with pytest.raises(InputFileError, match="Nothing was executed"):
            load_checkpoint(path, model=model)
    assert inspect(path).named("dangerous")

    assert not canary.exists()


def test_the_canary_would_show(canary: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(touch(canary), path)

    with pytest.raises(InputFileError):  # it holds a number, not a model
        load_checkpoint(path, trust=True)

    assert canary.exists()


def test_a_plain_pickle_is_not_unpickled(canary: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(touch(canary)))

    with pytest.raises(InputFileError, match="plain Python pickle"):
        load_checkpoint(path)

    assert not canary.exists()


def rewritten(path: Path, pickled: bytes) -> Path:
    """The zip checkpoint at `path` with its pickle replaced."""
    result = path.with_name("hostile.pt")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(result, "w") as new:
        for member in old.namelist():
            new.writestr(member, pickled if member.endswith("data.pkl") else old.read(member))
    return result


# A pickle, and what the refusal says of it.
HAND_WRITTEN = {
    "a dotted name": (
        b"\x80\x04\x8c\x17torch.nn.modules.module\x8c\x10functools.reduce\x93)R.",
        "functools.reduce",
    ),
    "a constructor": (
        b"\x80\x02ctorch.nn.modules.linear\nLinear\nK\x02K\x02\x86R.",
        "the pickle calls",
    ),
    "arguments to __new__": (
        b"\x80\x02ctorch.nn.modules.linear\nLinear\nK\x02\x85\x81.",
        "hands arguments",
    ),
    "a function of a library": (
        b"\x80\x02ctorchvision.models.resnet\nresnet18\n)R.",
        "Nothing was executed",
    ),
    "an extension": (b"\x80\x02\x82\x01.", "Nothing was executed"),
    "a call of what it made": (
        b"\x80\x02ctorch.nn.modules.activation\nReLU\n)\x81)R.",
        "the pickle calls",
    ),
    "protocol 0 INST": (b"(S'touch /nonexistent'\nios\nsystem\n.", "Nothing was executed"),
    "protocol 1 OBJ": (
        b"(ctorch.nn.modules.linear\nLinear\nK\x02K\x02o.",
        "the pickle calls",
    ),
    "state on a class": (
        b"\x80\x02ctorch.nn.modules.linear\nLinear\n}X\x07\x00\x00\x00forwardNsb.",
        "sets attributes",
    ),
    "items into a module": (
        b"\x80\x02ctorch.nn.modules.activation\nReLU\n)\x81K\x01K\x02s.",
        "stores items",
    ),
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_a_hand_written_gadget_is_refused(name: str, tmp_path: Path) -> None:
    pickled, said = HAND_WRITTEN[name]
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    path = rewritten(tmp_path / "model.pt", pickled)

    with pytest.raises(InputFileError, match=said):
        load_checkpoint(path)


def test_state_set_by_the_pickle_is_never_called(tmp_path: Path) -> None:
    """BUILD twice: the first plants `__setstate__` on the instance, the second would call it."""
    plant = b"}X\x0c\x00\x00\x00__setstate__ctorch\ndevice\nsb"
    pickled = b"\x80\x02ctorch.nn.modules.activation\nReLU\n)\x81" + plant + b"}b."
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")

    # Called, torch.device would raise TypeError, which reads as a damaged file.
    with pytest.raises(InputFileError, match="not complete"):
        load_checkpoint(rewritten(tmp_path / "model.pt", pickled))


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def test_a_class_needs_allow_and_the_message_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Sequential):\n    pass\n"
        "def evil():\n    raise SystemError\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shop

    torch.save(shop.Net(nn.Linear(2, 2)), tmp_path / "model.pt")

    with pytest.raises(InputFileError) as refused:
        load_checkpoint(tmp_path / "model.pt")
    assert "--allow shop.Net" in str(refused.value)

    loaded = load_checkpoint(tmp_path / "model.pt", allow=["shop.Net"])
    assert type(loaded.module) is shop.Net
    assert loaded.architecture == "shop.Net"
    assert "--allow imported shop.Net" in loaded.notes

    with pytest.raises(UsageError, match="function"):
        load_checkpoint(tmp_path / "model.pt", allow=["shop.evil"])


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "torch.fx.GraphModule"])
def test_allow_never_admits_what_runs_code(name: str, tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")

    with pytest.raises(UsageError, match="never allowed"):
        load_checkpoint(tmp_path / "model.pt", allow=[name])


def test_a_class_that_is_missing_is_named_with_what_helps(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    pickled = b"\x80\x02cmodel\nBDA\n)\x81}X\x08\x00\x00\x00_modules}sb."
    path = rewritten(tmp_path / "model.pt", pickled)

    with pytest.raises(InputFileError) as refused:
        load_checkpoint(path)

    assert "model.BDA" in refused.value.message
    assert "--model" in (refused.value.hint or "")
    assert "PYTHONPATH" in (refused.value.hint or "")


# torch.export archives


class Add(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0] + 1


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    program = torch.export.export(
        Add(), (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim("b", min=2, max=9)},)
    )
    torch.export.save(program, path)
    return path


def edited(archive: Path, member: str, edit: Callable[[bytes], bytes]) -> Path:
    result = archive.with_name("hostile.pt2")
    seen = False
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(member):
                data, seen = edit(data), True
            new.writestr(name, data)
    assert seen
    return result


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def edit(data: bytes) -> bytes:
        text = data.decode()
        assert old in text, text[:4000]
        return text.replace(old, new).encode()

    return edit


def test_an_honest_archive_loads(archive: Path) -> None:
    loaded = load_checkpoint(archive)

    assert loaded.kind == "exported_program"
    assert loaded.program is not None
    assert torch.equal(loaded.module(torch.ones(3, 2)), torch.full((3, 2), 4.0))


def test_pickled_inputs_of_an_archive_are_not_run(archive: Path, canary: Path) -> None:
    buffer = io.BytesIO()
    torch.save(((touch(canary),), {}), buffer)
    path = edited(archive, "sample_inputs/model.pt", lambda _: buffer.getvalue())

    with pytest.raises(InputFileError, match="refused"):
        load_checkpoint(path)

    assert not canary.exists()


@pytest.mark.parametrize("name", ["opaque_obj_0", "custom_obj_0", "tensor_0"])
def test_pickled_constants_of_an_archive_are_not_run(
    name: str, archive: Path, canary: Path
) -> None:
    table = {"c": {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}}
    path = edited(
        archive, "constants_config.json", lambda _: json.dumps({"config": table}).encode()
    )
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as hostile:
        warnings.simplefilter("ignore")
        root = hostile.namelist()[0].partition("/")[0]
        hostile.writestr(f"{root}/data/constants/{name}", pickle.dumps(touch(canary)))

    with pytest.raises(InputFileError):
        load_checkpoint(path)

    assert not canary.exists()


EVIL = "__import__('os').system('touch CANARY')"
PROGRAM_EDITS = {
    "a symbolic expression": ("Symbol('", f"Symbol({EVIL} and '"),
    "an operator": ("torch.ops.aten.mul.Tensor", "torch.serialization.os.system"),
    "an operator of Python": ("torch.ops.aten.mul.Tensor", "torch.hub.load"),
    "a file operator": ("torch.ops.aten.mul.Tensor", "torch.ops.aten.from_file.default"),
    "a higher-order operator": (
        "torch.ops.aten.mul.Tensor",
        "torch.ops.higher_order.triton_kernel_wrapper_mutation",
    ),
    "a guard": ('"guards_code": []', f'"guards_code": ["{EVIL}"]'),
    "a placeholder's name": ('"name": "x"', f'"name": "x={EVIL}"'),
    "an enum in the argument tree": (
        '\\"context\\": \\"null\\"',
        '\\"context\\": \\"{\\\\\\"__enum__\\\\\\": true, '
        '\\\\\\"fqn\\\\\\": \\\\\\"antigravity:x\\\\\\", \\\\\\"name\\\\\\": \\\\\\"y\\\\\\"}\\"',
    ),
}


@pytest.mark.parametrize("name", PROGRAM_EDITS)
def test_a_program_that_would_run_code_is_refused_unrun(
    name: str, archive: Path, canary: Path
) -> None:
    old, new = PROGRAM_EDITS[name]
    path = edited(archive, "models/model.json", replaced(old, new.replace("CANARY", str(canary))))

    with pytest.raises(InputFileError, match="refused"):
        load_checkpoint(path)

    assert not canary.exists()


def test_a_hostile_expression_runs_where_torch_alone_loads_it(archive: Path, canary: Path) -> None:
    """The reason for the vetting; when torch no longer evaluates, it can go."""
    old, new = PROGRAM_EDITS["a symbolic expression"]
    path = edited(archive, "models/model.json", replaced(old, new.replace("CANARY", str(canary))))

    with contextlib.suppress(Exception):  # it may fail after the code ran
        torch.export.load(path)

    assert canary.exists()


def test_compiled_code_needs_trust(archive: Path) -> None:
    path = archive.with_name("native.pt2")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        root = name.partition("/")[0]
        new.writestr(f"{root}/data/aotinductor/model/a.so", b"\x7fELF")

    with pytest.raises(InputFileError, match="native code") as refused:
        load_checkpoint(path)
    assert "--trust" in (refused.value.hint or "")
    assert any("native code" in note for note in inspect(path).notes)


# TorchScript archives


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, "PLACE")
        return x


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_file("/etc/hostname", False, 1)


def scripted(module: nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module).save(str(path))
    return path


@pytest.mark.parametrize("module", [Writes(), Reads()], ids=["save", "from_file"])
def test_torchscript_that_touches_files_needs_trust(module: nn.Module, tmp_path: Path) -> None:
    path = scripted(module, tmp_path / "model.pt")

    with pytest.raises(InputFileError, match="uses a call of") as refused:
        load_checkpoint(path)
    assert "--trust" in (refused.value.hint or "")

    assert load_checkpoint(path, trust=True).kind == "torchscript"


def test_torchscript_renaming_torch_is_still_refused(tmp_path: Path) -> None:
    path = scripted(Writes(), tmp_path / "model.pt")
    with zipfile.ZipFile(path) as archive:
        member = next(n for n in archive.namelist() if b"torch.save" in archive.read(n))
    hidden = edited(
        path,
        member,
        lambda data: data.replace(b"    torch.save(", b"    t = torch\n    t . save("),
    )

    with pytest.raises(InputFileError, match="refused"):
        load_checkpoint(hidden)


def test_compiled_methods_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scripted(Writes(), tmp_path / "model.pt")
    monkeypatch.setattr(programs, "vet_script", lambda name, text: None)

    with pytest.raises(InputFileError, match="aten::save"):
        load_checkpoint(path)


def test_honest_torchscript_loads(tmp_path: Path) -> None:
    path = scripted(Custom(), tmp_path / "model.pt")

    loaded = load_checkpoint(path)

    assert loaded.kind == "torchscript"
    assert loaded.architecture == "Custom"
    assert not any(parameter.requires_grad for parameter in loaded.module.parameters())
    assert not loaded.module.training


def test_a_wrapper_of_itself_ends(tmp_path: Path) -> None:
    wrapper = nn.DataParallel(nn.Linear(2, 2))
    wrapper._modules.clear()
    wrapper.__dict__["module"] = wrapper
    torch.save(wrapper, tmp_path / "m.pt")

    with contextlib.suppress(InputFileError):
        load_checkpoint(tmp_path / "m.pt")
    assert inspect(tmp_path / "m.pt").root_class
