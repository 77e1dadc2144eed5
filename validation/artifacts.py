"""An artifact on disk: the target that wrote it, and what its manifest tells of it."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputFileError, UsageError
from ..exporter.source import Request
from ..manifest import Manifest, manifest_path
from ..targets import registry
from ..targets.base import Signature, Target

__all__ = [
    "demand_trust",
    "filled",
    "first_device",
    "identify",
    "options_of",
    "signature_of",
    "verified",
]


def options_of(target: Target, manifest: Manifest | None) -> Any:
    """Those that the artifact was converted with, as far as its manifest tells and they exist."""
    fields = {field.name for field in dataclasses.fields(target.options_type)}
    known = manifest.document.get("options", {}) if manifest is not None else {}
    try:
        return target.options_type(**{k: v for k, v in known.items() if k in fields})
    except (TypeError, UsageError):  # a manifest that somebody wrote by hand
        return target.options_type()


def demand_trust(target: Target, path: Path, trust: bool) -> None:
    """Opening a file of a format whose target says `native_code` runs what is in it.

    Raises:
        InputFileError: the user did not say that the file is to be trusted.
    """
    if trust or not getattr(target, "native_code", False):
        return
    raise InputFileError(
        f"{path} holds compiled native code ({target.name}), which can do anything that you can "
        "do, and which opening it would run",
        hint="if you trust whoever made the file, open it with --trust (trust=True)",
    )


def signature_of(manifest: Manifest | None) -> Signature | None:
    """What goes in and out, as the manifest tells it."""
    return None if manifest is None else Signature(manifest.inputs, manifest.outputs)


def identify(path: Path) -> tuple[Target, Manifest | None, list[str]]:
    """The target that wrote `path`, its manifest if there is one, and what is odd about them."""
    if not path.exists():
        raise InputFileError(f"the artifact {path} does not exist")
    described = manifest_path(path)
    if described.exists():
        manifest = Manifest.read(described)
        notes = []
        if wrong := manifest.mismatches(path.parent):
            notes.append(
                f"{', '.join(wrong)} is not what the manifest describes: it was changed, or an "
                "export was interrupted"
            )
        return _target_of(path, manifest.format), manifest, notes
    if (target := registry.of_suffix(path.name)) is not None:
        return target, None, []
    raise InputFileError(
        f"{path} has no manifest and a suffix that no format has",
        hint=f"known suffixes: {', '.join(registry.suffixes())}",
    )


def _target_of(path: Path, name: str) -> Target:
    """The target of a format; a package that is to be built on the device has its own."""
    found = registry.of_suffix(path.name)
    return found if found is not None and found.name == name else registry.get(name)


def verified(target: Target, path: Path) -> list[str]:
    """Notes of targets that can tell more of a written artifact than that it opens.

    Raises:
        InputFileError: a part of it that opening does not read is damaged.
    """
    if getattr(target, "golden", False):
        from .vectors import DamagedVectorsError, read_golden

        try:
            read_golden(path)
        except DamagedVectorsError as error:
            raise InputFileError(
                f"the golden vectors of {path} are damaged: {error}", hint="export again"
            ) from error
    verify = getattr(target, "verify", None)
    return list((verify(path) if verify is not None else None) or ())


def first_device(target: Target) -> str:
    """Where an artifact is run if nobody says where."""
    return next(iter(target.capability().devices), "cpu")


def filled(request: Request, manifest: Manifest | None) -> Request:
    """Take from the manifest what the user did not say."""
    if manifest is None:
        return request
    known = manifest.request
    nothing_said = not (request.args or request.kwargs or request.inputs)
    found = replace(
        request,
        model=request.model or known.get("model"),
        inputs=known.get("inputs") if nothing_said else request.inputs,
        dynamic=request.dynamic if request.dynamic is not None else known.get("dynamic"),
    )
    if found.inputs is None and nothing_said:
        found = replace(found, inputs=[_text(spec) for spec in manifest.inputs])
    return found


def _text(spec: Any) -> str:
    """An `--input` text for a spec, dynamic dims at a small size that they allow."""
    sizes = [
        size if isinstance(size, int) else max(2, size.min) + -max(2, size.min) % size.step
        for size in spec.shape
    ]
    shape = "x".join(map(str, sizes)) or "scalar"
    span = "" if spec.range is None else f":{spec.range[0]}..{spec.range[1]}"
    return f"{spec.name}={shape}:{spec.dtype}{span}"
