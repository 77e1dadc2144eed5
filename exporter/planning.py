"""What an export is to make and where it goes, settled before any work is done."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import IsomorphError, MissingRequirementError, UsageError
from ..manifest import manifest_path
from ..targets import registry
from ..targets.contract import told_of
from ..targets.options import build_options
from .fallback import fallback_of
from .records import companions, stale_files

if TYPE_CHECKING:
    from ..targets.base import Target

__all__ = ["Plan", "make_plans", "missing_devices", "protect"]


@dataclass(frozen=True)
class Plan:
    """One format to make: where it goes and how, and the devices that it is run on.

    `problem` says why it cannot be made here; the other formats still can. `stands_for` is the
    name of the format that this one is made instead of. `missing` says of those `devices` that are
    not here what they lack, where others are: the artifact is not run on them.
    """

    target: Target
    options: Any
    destination: Path
    devices: tuple[str, ...] = ()
    problem: IsomorphError | None = None
    stands_for: str | None = None
    missing: Mapping[str, MissingRequirementError] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.target.name


def make_plans(
    source: Any,
    formats: Sequence[str],
    output: str | Path | None,
    options: Mapping[str, Any] | None,
    precision: str = "fp32",
    devices: Sequence[str] | None = (),
    *,
    defer: bool = False,
) -> list[Plan]:
    """Resolve targets, options and destinations before any work is done.

    Args:
        devices: those that the artifacts will be run on; none if they are not checked, None for
            the first that each format has here.
        defer: write packages that build their engines on the device.

    Raises:
        UsageError: a format, option or destination that cannot be meant.
    """
    plans = []
    several = len(formats) > 1
    deferred = _deferred(formats) if defer else ()
    for name in formats:
        target = registry.deferred(name) if name in deferred else registry.get(name)
        own = (options or {}).get(name, {}) if several or name in (options or {}) else options
        plan = Plan(
            target,
            build_options(target.options_type, own or {}),
            _destination(source, target, output, several),
        )
        plan = _settled(plan, precision, devices)
        if (instead := fallback_of(plan, formats)) is not None:
            # It runs where it can: devices that were asked for are the other format's.
            instead = _settled(instead, precision, devices and None)
            plans += [] if instead.problem is not None else [instead]
        plans.append(plan)
    return plans


def _deferred(formats: Sequence[str]) -> list[str]:
    """Those formats that are built on the device; the others are made here.

    Raises:
        UsageError: none is.
    """
    found = [name for name in formats if hasattr(registry.get(name), "deferred")]
    if not found:
        raise UsageError(
            f"{', '.join(formats)}: what is made here cannot be deferred",
            hint="--defer goes with --format tensorrt, whose engines are built on their GPU",
        )
    return found


def _settled(plan: Plan, precision: str, devices: Sequence[str] | None) -> Plan:
    """The plan with its devices, or with the problem that this machine or request gives it."""
    target = plan.target
    try:
        _demand_builder(target)
        _demand_precision(target, precision)
        if devices is None:
            devices = target.capability().devices[:1] or ("cpu",)
        missing = missing_devices(target, devices)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        return replace(plan, problem=told_of(error, target.name))
    return replace(plan, devices=tuple(devices), missing=missing)


def _demand_builder(target: Target) -> None:
    capability = target.capability()
    if not capability.builds:
        raise MissingRequirementError(
            f"the format {target.name} cannot be made on this machine"
            + (f": {capability.lacks}" if capability.lacks else ""),
            hint=f"install what it needs: {capability.remedy}"
            if str(capability.remedy).startswith("pip ")
            else capability.remedy,
        )


def _demand_precision(target: Target, precision: str) -> None:
    if precision not in target.precisions:
        raise UsageError(
            f"the format {target.name} does not hold {precision}",
            hint=f"choose --precision {' or '.join(target.precisions)}",
        )


def protect(plans: Sequence[Plan], given: Sequence[Any]) -> None:
    """Refuse to write onto anything that is read, and onto folders."""
    read = [Path(entry) for entry in given if isinstance(entry, (str, Path))]
    for plan in plans:
        for path in companions(plan.target, plan.destination):
            for source in read:
                if _same_file(path, source):
                    raise UsageError(
                        f"the output would overwrite {source}", hint="choose another -o"
                    )
            if path.exists() and not path.is_file() and not _is_artifact(path):
                raise UsageError(
                    f"{path}, which would be written, is no regular file",
                    hint="choose another -o",
                )
        _protect_strangers(plan)


def _protect_strangers(plan: Plan) -> None:
    """A file beside the artifact is replaced only if an export of that artifact wrote it.

    `model.bin` beside `model.xml` may well be somebody's weights.
    """
    destination = plan.destination
    ours = stale_files(plan.target, destination)
    for path in companions(plan.target, destination):
        if path.name.startswith(destination.name) or not path.exists() or path in ours:
            continue
        raise UsageError(
            f"{path}, which belongs to {destination.name}, exists and is not of an earlier export",
            hint="choose another -o, or move that file away",
        )


def missing_devices(target: Target, devices: Sequence[str]) -> dict[str, MissingRequirementError]:
    """Those of `devices` that are not here, where others are.

    Raises:
        MissingRequirementError: none is here, so that nothing could be run.
        UsageError: the format knows no such device, or one is named twice.
    """
    if len(set(devices)) < len(devices):
        raise UsageError("a device is given twice")
    missing = {}
    for device in devices:
        try:
            _demand_device(target, device)
        except MissingRequirementError as error:
            missing[device] = error
    if devices and len(missing) == len(devices):
        raise missing[devices[0]]
    return missing


def _demand_device(target: Target, device: str) -> None:
    """Fail before any work if an artifact could not be run where it is to be run."""
    capability = target.capability()
    kind = device.partition(":")[0]
    if kind in capability.devices:
        return
    if not capability.runs:
        raise MissingRequirementError(
            f"{target.name} files cannot be run on this machine",
            hint=f"{capability.remedy}; or write without checking: --no-validate",
        )
    known = [*capability.devices, *capability.device_remedies]
    if kind not in known:
        raise UsageError(
            f"the format {target.name} does not know the device {device!r}",
            hint=f"choose from {', '.join(known)}",
        )
    raise MissingRequirementError(
        f"{target.name} has no {kind} on this machine, only {', '.join(capability.devices)}",
        hint=capability.device_remedies[kind],
    )


def _destination(source: Any, target: Target, output: str | Path | None, several: bool) -> Path:
    stem = Path(source).name.rsplit(".", 1)[0] if isinstance(source, (str, Path)) else "model"
    if isinstance(source, (str, Path)):
        beside = Path(source).parent
    else:
        stem, beside = type(source).__name__.lower(), Path()
    if several and output is not None and Path(output).suffix and not _is_folder(output):
        suffix = next((s for s in _suffixes() if str(output).endswith(s)), None)
        if suffix is not None:
            raise UsageError(
                f"the output {output} ends with {suffix}, and several formats go into a folder",
                hint="write -o FOLDER/",
            )
    if output is None:
        path = beside / f"{stem}{target.suffix}"
    elif several or _is_folder(output) or str(output).endswith(("/", "\\")):
        path = Path(output) / f"{stem}{target.suffix}"
    else:
        path = Path(output)
        if not path.name.endswith(target.suffix):
            raise UsageError(
                f"the output {path} does not end with {target.suffix}, "
                f"the suffix of the format {target.name}",
                hint=f"write -o {path.with_suffix(target.suffix)}",
            )
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the output's name is not valid text in UTF-8", hint="choose another -o"
        ) from None
    return path


def _is_folder(output: str | Path) -> bool:
    """A directory that files go into."""
    return Path(output).is_dir() and not _is_artifact(Path(output))


def _is_artifact(path: Path) -> bool:
    """An artifact that is a directory itself (.mlpackage), Isomorph's or another tool's."""
    written = manifest_path(path).is_file() or (path / "Manifest.json").is_file()
    return path.is_dir() and written and path.name.endswith(tuple(_suffixes()))


def _suffixes() -> list[str]:
    return registry.suffixes()


def _same_file(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist, or cannot be looked at
        return False
