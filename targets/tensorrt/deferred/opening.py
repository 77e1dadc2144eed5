"""Opens a package where its engine cannot be built yet: the network is computed instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from .... import __version__
from ....errors import InputFileError, MissingRequirementError, UsageError
from ....hashing import sha256_of
from ...base import Session, Signature
from ...packages import importable
from ..products import parsers
from .packing import RECIPE, SCRIPT, constants_of, is_ours

__all__ = ["demand_whole", "open_package"]

_AGAIN = "export again, or copy the whole folder once more"
_ENGINE = f"not built yet: {SCRIPT} builds and checks it on the device"


def open_package(folder: Path, device: str, signature: Signature | None) -> Session:
    """A session that computes the network of `folder`.

    By TensorRT for RTX's parser and our evaluator where that parser is installed, else by ONNX
    Runtime; the evidence says which.

    Raises:
        UsageError: the device is not "cpu".
        InputFileError: a file is missing or was changed.
        MissingRequirementError: neither is installed.
        ConversionError: the parser refuses the network.
    """
    if device.partition(":")[0] != "cpu":
        raise UsageError(
            f"a deferred package does not run on {device} from here",
            hint=f"run {SCRIPT} of the package on the device",
        )
    recipe = _read_recipe(folder)
    path = folder / recipe["onnx"]
    details = {"engine": _ENGINE, "precision": recipe["build"]["precision"]}
    for product in parsers():
        from ..evaluating import NetworkSession

        return NetworkSession(product, path, signature, details)
    if not importable("onnxruntime"):
        raise MissingRequirementError(
            "checking the network of a deferred package needs a parser of TensorRT or ONNX Runtime",
            hint='run: pip install "isomorph[tensorrt-rtx]"',
        )
    from ...onnx.session import OnnxSession

    session = OnnxSession(path, "cpu", signature)
    told = {"network": "the ONNX file, run by ONNX Runtime: no parser of TensorRT saw it"}
    evidence = session.evidence
    session.evidence = replace(
        evidence, kind="evaluated", details={**evidence.details, **told, **details}
    )
    return session


def demand_whole(folder: Path) -> None:
    """What opening does not read: the script must be that of this package.

    Raises:
        InputFileError: a file is missing or was changed.
    """
    _read_recipe(folder)
    try:
        script = (folder / SCRIPT).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputFileError(f"{folder} has no readable {SCRIPT}: {error}", hint=_AGAIN) from error
    if constants_of(script).get("RECIPE_SHA256") != sha256_of(folder / RECIPE):
        raise InputFileError(f"{RECIPE} is not the one that {SCRIPT} belongs to", hint=_AGAIN)
    if constants_of(script).get("ISOMORPH") == __version__ and not is_ours(script):
        raise InputFileError(f"{folder / SCRIPT} was changed", hint=_AGAIN)


def _read_recipe(folder: Path) -> dict[str, Any]:
    """`build.json`, whose files must be there with the bytes that it names.

    Raises:
        InputFileError: they are not.
    """
    path = folder / RECIPE
    if not folder.is_dir():
        raise InputFileError(f"{folder} is no folder", hint="name a .trt-deferred folder")
    try:
        recipe: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): str(digest) for name, digest in recipe["files"].items()}
        if recipe["onnx"] not in files or not isinstance(recipe["build"]["precision"], str):
            raise ValueError("it names no network")
    except FileNotFoundError:
        raise InputFileError(f"{folder} has no {RECIPE}", hint=_AGAIN) from None
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError),
        RecursionError,
    ) as error:
        raise InputFileError(f"{path} is damaged: {error}", hint=_AGAIN) from error
    for name, digest in files.items():
        file = folder / name
        if file.is_absolute() != folder.is_absolute() or ".." in file.relative_to(folder).parts:
            raise InputFileError(f"{path} names {name}, which is not in the folder", hint=_AGAIN)
        if not file.is_file():
            raise InputFileError(f"{folder} lacks {name}", hint=_AGAIN)
        if sha256_of(file) != digest:
            raise InputFileError(f"{file} was changed", hint=_AGAIN)
    return recipe
