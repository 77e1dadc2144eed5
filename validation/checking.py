"""From a capture to a reference, and from an artifact on disk to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConversionError, InputFileError, UsageError, first_line
from ..exporter.source import Request, in_eval_mode, open_source, sample_entries
from ..manifest import Manifest, manifest_path
from ..progress import Progress, Silent
from ..targets import registry
from ..targets.base import PRECISIONS, Signature
from . import cases, reference
from .parity import judge

if TYPE_CHECKING:
    import torch

    from ..exporter.capture import Capture
    from ..exporter.graph import Graph
    from ..targets.base import Session, Target
    from .report import Report

__all__ = ["label_of", "load", "located", "make_reference", "validate"]


_FROZEN = (
    "forward() depends on something that tracing fixes: a branch on a value, a random number, or "
    "state kept between calls. Use torch.where or torch.cond for branches, and pass state as an "
    "input and an output"
)


def make_reference(
    capture: Capture,
    module: torch.nn.Module,
    data: Sequence[dict[str, torch.Tensor]],
    progress: Progress,
    lowered: Graph | None = None,
) -> reference.Reference:
    """Truth and noise floor over generated and given cases.

    `lowered` is the captured graph in the precision of the artifact (see
    `exporter.precision`): the truth stays the model's, the floor becomes that graph's.

    Raises:
        ConversionError: the captured program does not compute what the module computes.
    """
    chosen = cases.generate(
        capture.graph, capture.inputs, synthetic_example=capture.synthetic, data=data
    )
    found = reference.compute(capture.graph, module, chosen, progress=progress)
    if found.capture.reason is not None:
        raise ConversionError(found.capture.reason, hint=found.capture.hint or _FROZEN)
    if lowered is None or lowered.precision == "fp32":
        return found
    from .lowered import lowered_reference

    return lowered_reference(found, lowered, progress)


def validate(
    artifact: str | Path,
    against: str | Path | torch.nn.Module,
    *,
    model: str | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str | Path] | str | Path | None = None,
    dynamic: Mapping[str, str] | None = None,
    device: str | None = None,
    precision: str | None = None,
    data: Sequence[str | Path | Mapping[str, Any]] | None = None,
    trust: bool = False,
    allow: Sequence[str] = (),
    progress: Progress | None = None,
    reproduction: Path | None = None,
    case: str | None = None,
) -> Report:
    """Does the artifact compute what the model `against` computes?

    What is not given is taken from the artifact's manifest, where one lies beside it.

    Args:
        artifact: a file that a target wrote; its bytes are judged as they are now.
        against: a checkpoint's path, or a module.
        model: as for `export`, and so are args, kwargs, inputs, dynamic, data, trust, allow.
        device: where to run the artifact; None: on the first device that its format has here.
        precision: "fp32", "fp16" or "bf16": whose noise the artifact may have.
        trust: also lets an artifact that is native code run; see `load`.
        progress: told about stages; silent by default.
        reproduction: where to write a script that shows the wrong operator alone, if one is found.
        case: the case on which a fault is localised; None: the worst.

    Raises:
        InputFileError: the artifact or the checkpoint cannot be read, or is not trusted.
        UsageError: the request does not fit the model.
        ConversionError: the model cannot be captured.
        MissingRequirementError: the runtime or the device is not there.
    """
    progress = progress or Silent()
    if precision not in (None, *PRECISIONS):
        raise UsageError(
            f"precision {precision!r} is not known", hint=f"choose {', '.join(PRECISIONS)}"
        )
    path = Path(artifact)
    target, manifest, notes = _identify(path)
    _demand_trust(target, path, trust)
    request = Request(model, tuple(args), kwargs, inputs, dynamic, trust, tuple(allow))
    with in_eval_mode(against) as mode_notes:
        source = open_source(against, _fill(request, manifest), progress, hashed=False)
        samples: list[dict[str, torch.Tensor]] = []
        if data:
            from ..exporter.samples import load_samples

            samples, more = load_samples(sample_entries(data), source.capture.graph.inputs)
            notes += more
        graph = source.capture.graph
        wanted = precision or (manifest.precision if manifest else "fp32")
        if wanted != "fp32":
            from ..exporter.precision import lower_precision

            graph = lower_precision(graph, wanted)
        signature = _signature(manifest) or Signature(graph.inputs, graph.outputs)
        with target.open(path, device or _first_device(target), signature) as session:
            notes += _verified(target, path)
            found = make_reference(source.capture, source.module, samples, progress, graph)
            report = judge(graph, found, session, progress=progress)
            report = located(
                report,
                graph,
                found,
                session,
                target,
                _options_of(target, manifest),
                path,
                reproduction=reproduction,
                case=case,
                progress=progress,
            )
        if source.fingerprint is not None:
            source.fingerprint.demand_unchanged()
    notes += [*source.notes, *mode_notes, *graph.notes]
    return replace(
        report,
        notes=tuple(dict.fromkeys((*notes, *report.notes))),
        model=label_of(against),
        format=target.name,
        artifact=path.name,
        precision=wanted,
        versions=dict(manifest.document.get("versions") or {}) if manifest is not None else {},
    )


def label_of(source: Any) -> str:
    """What a report calls a model: the file's name, or the module's class."""
    return Path(source).name if isinstance(source, (str, Path)) else type(source).__name__


def located(
    report: Report,
    graph: Graph,
    found: reference.Reference,
    session: Session,
    target: Target,
    options: Any,
    artifact: Path,
    *,
    reproduction: Path | None = None,
    case: str | None = None,
    progress: Progress,
) -> Report:
    """`report` with the first wrong operator, if it fails; see `localize.localize`.

    A verdict stands whether or not its cause is found: what keeps it from being found is a note.
    """
    if report.verdict != "fail" or not found.capture.passed:
        return report
    from .localize import localize

    try:
        return replace(
            report,
            localization=localize(
                graph,
                found,
                report,
                session,
                target,
                options,
                artifact,
                reproduction=reproduction,
                case=case,
                progress=progress,
            ),
        )
    except (UsageError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - runtimes and converters may raise anything
        what = f"the fault could not be localised: {type(error).__name__}: {first_line(error)}"
        return replace(report, notes=(*report.notes, what))


def load(artifact: str | Path, device: str | None = None, *, trust: bool = False) -> Session:
    """Open an artifact with the runtime of its format; close it, or use it as a context manager.

    Args:
        trust: let a format that is native code (AOTInductor) run what is in the file.

    Raises:
        InputFileError: it is missing or unreadable, or is native code and not trusted.
        MissingRequirementError: the runtime or the device is not there.
    """
    path = Path(artifact)
    target, manifest, _ = _identify(path)
    _demand_trust(target, path, trust)
    return target.open(path, device or _first_device(target), _signature(manifest))


def _options_of(target: Target, manifest: Manifest | None) -> Any:
    """Those that the artifact was converted with, as far as its manifest tells and they exist."""
    fields = {field.name for field in dataclasses.fields(target.options_type)}
    known = manifest.document.get("options", {}) if manifest is not None else {}
    try:
        return target.options_type(**{k: v for k, v in known.items() if k in fields})
    except (TypeError, UsageError):  # a manifest that somebody wrote by hand
        return target.options_type()


def _demand_trust(target: Target, path: Path, trust: bool) -> None:
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


def _signature(manifest: Manifest | None) -> Signature | None:
    return None if manifest is None else Signature(manifest.inputs, manifest.outputs)


def _identify(path: Path) -> tuple[Target, Manifest | None, list[str]]:
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


def _verified(target: Target, path: Path) -> list[str]:
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


def _first_device(target: Target) -> str:
    return next(iter(target.capability().devices), "cpu")


def _fill(request: Request, manifest: Manifest | None) -> Request:
    """Take from the manifest what the user did not say."""
    if manifest is None:
        return request
    known = manifest.request
    nothing_said = not (request.args or request.kwargs or request.inputs)
    filled = replace(
        request,
        model=request.model or known.get("model"),
        inputs=known.get("inputs") if nothing_said else request.inputs,
        dynamic=request.dynamic if request.dynamic is not None else known.get("dynamic"),
    )
    if filled.inputs is None and nothing_said:
        filled = replace(filled, inputs=[_text(spec) for spec in manifest.inputs])
    return filled


def _text(spec: Any) -> str:
    """An `--input` text for a spec, dynamic dims at a small size that they allow."""
    sizes = [
        size if isinstance(size, int) else max(2, size.min) + -max(2, size.min) % size.step
        for size in spec.shape
    ]
    shape = "x".join(map(str, sizes)) or "scalar"
    span = "" if spec.range is None else f":{spec.range[0]}..{spec.range[1]}"
    return f"{spec.name}={shape}:{spec.dtype}{span}"
