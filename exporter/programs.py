"""Load a TorchScript archive or a torch.export archive, after reading what it would do."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import InputFileError
from .sniffing import FileKind
from .vetting import RefusedError, vet_payloads, vet_program, vet_script

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["load_exported_program", "load_torchscript"]

_TRUST = "only if you trust whoever made the file, --trust loads it without any check"
_SOURCE = re.compile(r"code/.*\.py")
_PROGRAM = re.compile(r"models/.*\.json")
_PAYLOADS = re.compile(r"data/(weights|constants)/.*_config\.json")
_FORBIDDEN_KINDS = {"aten::save", "aten::from_file", "prim::PythonOp", "prim::IgnoredPythonOp"}


def load_torchscript(source: Path, *, trust: bool) -> nn.Module:
    """A TorchScript module on the CPU.

    Raises:
        InputFileError: damaged, or it reads or writes files, or calls Python (without `trust`).
    """
    if not trust:
        archive = _archive(source, "a TorchScript archive")
        _vet(source, "TorchScript archive", _script_members(archive))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module: nn.Module = torch.jit.load(str(source), map_location="cpu")
        if not trust:
            _vet_graphs(source, module)
    except InputFileError:
        raise
    except Exception as error:
        raise _unreadable(source, "a TorchScript archive", error) from error
    return module


def _script_members(archive: Any) -> Iterator[tuple[str, Any]]:
    for name in archive.get_all_records():
        if _SOURCE.fullmatch(name):
            yield name, lambda text, name=name: vet_script(name, text)


def _vet_graphs(source: Path, module: nn.Module) -> None:
    """The compiled methods once more: operators under whatever name the source gave them."""
    for child in module.modules():
        compiled: Any = getattr(child, "_c", None)
        for method in compiled._method_names() if compiled is not None else ():
            graph = str(compiled._get_method(method).inlined_graph)
            for kind in _FORBIDDEN_KINDS & set(re.findall(r"\w+::\w+", graph)):
                raise _refusal(source, "TorchScript archive", f"the operator {kind}")


def load_exported_program(
    source: Path, found: FileKind, *, allowed: Mapping[str, type], trust: bool
) -> ExportedProgram:
    """The program of a `.pt2` archive.

    Raises:
        InputFileError: damaged, of another torch version, or (without `trust`) it holds
            native code, unpickles objects, or would run code when loaded.
    """
    if not trust:
        _vet_pt2(source, found)
    try:
        with warnings.catch_warnings(), _quiet_logging(), _weights_only(trust, allowed):
            warnings.simplefilter("ignore")
            return torch.export.load(source) if trust else _load_archive(source)
    except InputFileError:
        raise
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+) was not", str(error))
        found_name = name[1] if name else "a pickled object"
        raise _refusal(source, "torch.export archive", found_name) from error
    except Exception as error:
        raise _unreadable(source, "a torch.export archive", error) from error


def _vet_pt2(source: Path, found: FileKind) -> None:
    if found.kind == "aot_package" or any("/data/aotinductor/" in m for m in found.members):
        raise InputFileError(
            f"{source} holds compiled native code (AOTInductor), which loading it would run",
            hint="export from the checkpoint it was made from; " + _TRUST,
        )
    if "archive_format" not in {member.partition("/")[2] for member in found.members}:
        raise InputFileError(
            f"{source} is {found.looks_like}, whose members torch unpickles without restriction",
            hint="save it again with this version of torch; " + _TRUST,
        )
    archive = _archive(source, "a torch.export archive")
    _vet(source, "torch.export archive", _program_members(archive))


def _program_members(archive: Any) -> Iterator[tuple[str, Any]]:
    for name in archive.get_all_records():
        if name.startswith("data/aotinductor/"):
            raise RefusedError("compiled native code")
        if _PROGRAM.fullmatch(name):
            yield name, vet_program
        elif _PAYLOADS.fullmatch(name):
            yield name, vet_payloads


def _load_archive(source: Path) -> ExportedProgram:
    from torch.export.pt2_archive._package import load_pt2

    programs: dict[str, ExportedProgram] = load_pt2(str(source)).exported_programs
    if not programs:
        raise InputFileError(f"{source} holds no exported program")
    if "model" not in programs and len(programs) > 1:
        raise InputFileError(
            f"{source} holds several programs ({', '.join(programs)}) and none called model",
            hint="save the one to export by itself: torch.export.save(program, path)",
        )
    return programs.get("model") or next(iter(programs.values()))


@contextlib.contextmanager
def _weights_only(trust: bool, allowed: Mapping[str, type]) -> Iterator[None]:
    """Make every `torch.load` inside torch.export restricted, as torch's own variable does.

    torch.export asks for `weights_only=False` where the restricted load fails.
    """
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    if not trust:
        os.environ[variable] = "1"
    try:
        with torch.serialization.safe_globals(list(allowed.values())):
            yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


@contextlib.contextmanager
def _quiet_logging() -> Iterator[None]:
    """torch.export logs tracebacks of failures that are reported here anyway."""
    import logging

    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _archive(source: Path, what: str) -> Any:
    """The archive through torch's own reader: what is vetted is what will be loaded."""
    try:
        return torch._C.PyTorchFileReader(str(source))
    except RuntimeError as error:
        raise _unreadable(source, what, error) from error


def _vet(source: Path, what: str, members: Iterator[tuple[str, Any]]) -> None:
    archive = _archive(source, f"a {what}")
    try:
        for name, check in members:
            check(archive.get_record(name).decode())
    except RefusedError as error:
        raise _refusal(source, what, str(error)) from error
    except Exception as error:
        raise _unreadable(source, f"a {what}", error) from error


def _refusal(source: Path, what: str, found: str) -> InputFileError:
    return InputFileError(
        f"{source} is refused: this {what} uses {found}, which no model needs and which could "
        "read or write files or run code. Nothing was executed",
        hint="export from the checkpoint it was made from; " + _TRUST,
    )


def _unreadable(source: Path, what: str, error: BaseException) -> InputFileError:
    lines = str(error).strip().splitlines()
    return InputFileError(
        f"{source} looks like {what} but cannot be loaded by torch {torch.__version__}: "
        f"{type(error).__name__}{': ' + lines[0] if lines else ''}",
        hint="it is damaged, or another version of torch wrote it: save it again",
    )
