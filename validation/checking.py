"""From a capture to a reference, and from an artifact on disk to a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    ConversionError,
    MissingRequirementError,
    UsageError,
)
from ..exporter.clock import Clock
from ..exporter.planning import missing_devices
from ..exporter.requirements import check_require, demand_evidence
from ..exporter.source import Request, in_eval_mode, open_source, sample_entries
from ..progress import Progress, Silent
from ..targets.base import PRECISIONS, Signature
from . import cases, reference
from .artifacts import (
    demand_trust,
    filled,
    first_device,
    identify,
    options_of,
    signature_of,
    verified,
)
from .inputs.budget import check_budget
from .parity import judge

if TYPE_CHECKING:
    import torch

    from ..exporter.capture import Capture
    from ..exporter.graph import Graph
    from ..exporter.source import Source
    from ..targets.base import Session
    from .report import Report

__all__ = ["label_of", "load", "make_reference", "validate", "validate_on"]


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
    budget: float | None = None,
) -> reference.Reference:
    """Truth and noise floor over generated and given cases, as many as `budget` allows.

    `lowered` is the captured graph in the precision of the artifact (see
    `exporter.precision`): the truth stays the model's, the floor becomes that graph's.

    Raises:
        ConversionError: the captured program does not compute what the module computes.
    """
    chosen, note = cases.choose_cases(
        capture.graph,
        capture.inputs,
        synthetic_example=capture.synthetic,
        data=data,
        budget=budget,
    )
    found = reference.compute(capture.graph, module, chosen, progress=progress)
    if note is not None:
        found = replace(found, notes=(*found.notes, note))
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
    budget: float | None = None,
    tf32: bool = False,
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
        model: as for `export`, and so are args, kwargs, inputs, dynamic, data, budget, trust,
            allow, tf32.
        device: where to run the artifact; None: on the first device that its format has here. For
            several see `validate_on`.
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
    request = Request(model, tuple(args), kwargs, inputs, dynamic, trust, tuple(allow))
    check = _Check(
        Path(artifact),
        against,
        request,
        precision,
        tf32,
        progress or Silent(),
        check_budget(budget),
    )
    (report,) = check.reports(
        None if device is None else (device,), sample_entries(data), reproduction, case
    )
    return report


def validate_on(
    devices: Sequence[str],
    artifact: str | Path,
    against: str | Path | torch.nn.Module,
    *,
    model: str | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str | Path] | str | Path | None = None,
    dynamic: Mapping[str, str] | None = None,
    precision: str | None = None,
    data: Sequence[str | Path | Mapping[str, Any]] | None = None,
    budget: float | None = None,
    require: str | None = None,
    tf32: bool = False,
    trust: bool = False,
    allow: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[Report, ...]:
    """As `validate`, on several devices: a report for each, in their order.

    The truth is the same for all, and each has the floor of eager there. A device that is not here,
    while another is, has a report too: it is unverified and says what is missing.

    Args:
        devices: where to run the artifact; none: the first device that its format has here.
        require: "executed" or "evaluated": the least evidence to accept, on every device.

    Raises:
        MissingRequirementError: no device is here, or `require` is not met; and what `validate`
            raises.
    """
    check_require(require)
    request = Request(model, tuple(args), kwargs, inputs, dynamic, trust, tuple(allow))
    check = _Check(
        Path(artifact),
        against,
        request,
        precision,
        tf32,
        progress or Silent(),
        check_budget(budget),
    )
    reports = check.reports(tuple(devices), sample_entries(data), None, None)
    if all(report.verdict != "fail" for report in reports):  # a fault is told first
        demand_evidence(reports, require, check.target.capability().remedy)
    return reports


class _Check:
    """One artifact against one model, on one device or several."""

    def __init__(
        self,
        path: Path,
        against: str | Path | torch.nn.Module,
        request: Request,
        precision: str | None,
        tf32: bool,
        progress: Progress,
        budget: float,
    ) -> None:
        if precision not in (None, *PRECISIONS):
            raise UsageError(
                f"precision {precision!r} is not known", hint=f"choose {', '.join(PRECISIONS)}"
            )
        self._path = path
        self._against = against
        self.target, self._manifest, self._notes = identify(path)
        demand_trust(self.target, path, request.trust)
        self._request = request
        self._precision = precision or (self._manifest.precision if self._manifest else "fp32")
        self._tf32 = tf32
        self._progress = Clock(progress)
        self._budget = budget
        self._found: reference.Reference | None = None

    def reports(
        self,
        devices: Sequence[str] | None,
        data: Sequence[Any],
        reproduction: Path | None,
        case: str | None,
    ) -> tuple[Report, ...]:
        """A report for each device."""
        devices = devices or (first_device(self.target),)
        missing = missing_devices(self.target, devices) if len(devices) > 1 else {}
        notes = self._notes
        with in_eval_mode(self._against) as mode_notes:
            source = open_source(
                self._against, filled(self._request, self._manifest), self._progress, hashed=False
            )
            samples: list[dict[str, torch.Tensor]] = []
            if data:
                from ..exporter.samples import load_samples

                samples, more = load_samples(data, source.capture.graph.inputs)
                notes += more
            graph = source.capture.graph
            if self._precision != "fp32":
                from ..exporter.precision import lower_precision

                graph = lower_precision(graph, self._precision)
            reports = []
            for device in devices:
                self._progress.begin(None)
                try:
                    if device in missing:
                        raise missing[device]
                    report = self._on(device, graph, source, samples, reproduction, case)
                except MissingRequirementError as error:
                    if len(devices) == 1:
                        raise
                    from .devices import not_run

                    report = not_run(graph, self.target, device, error)
                reports.append(replace(report, seconds=self._progress.own_seconds()))
            if source.fingerprint is not None:
                source.fingerprint.demand_unchanged()
        notes += [*source.notes, *mode_notes, *graph.notes]
        return tuple(self._described(report, notes) for report in reports)

    def _on(
        self,
        device: str,
        graph: Graph,
        source: Source,
        samples: Sequence[dict[str, torch.Tensor]],
        reproduction: Path | None,
        case: str | None,
    ) -> Report:
        """The report on one device; the artifact is opened before anything is computed."""
        from ..targets.tf32 import allowing_tf32
        from .devices import on_device
        from .localize import located
        from .renaming import by_position

        signature = signature_of(self._manifest) or Signature(graph.inputs, graph.outputs)
        with (
            allowing_tf32(self._tf32),
            self.target.open(self._path, device, signature) as session,
        ):
            # A manifest is ours: then the target has compared the names.
            renamed = by_position(session, graph) if self._manifest is None else None
            if self._found is None:
                self._notes += verified(self.target, self._path)
                self._found = make_reference(
                    source.capture,
                    source.module,
                    samples,
                    self._progress,
                    graph,
                    self._budget,
                )
            known = on_device(
                self._found,
                source.capture.graph,
                source.module,
                device,
                tf32=self._tf32,
                progress=self._progress,
            )
            report = judge(graph, known.reference, renamed or session, progress=self._progress)
            if renamed is not None:
                return known.complete(renamed.told(report))
            return known.complete(
                located(
                    report,
                    graph,
                    known.reference,
                    session,
                    self.target,
                    options_of(self.target, self._manifest),
                    self._path,
                    reproduction=reproduction,
                    case=case,
                    progress=self._progress,
                )
            )

    def _described(self, report: Report, notes: Sequence[str]) -> Report:
        """The report with what was compared."""
        import torch

        known = self._manifest.document.get("versions") if self._manifest is not None else None
        here = {"torch": torch.__version__, report.evidence.runtime: report.evidence.version}
        return replace(
            report,
            notes=tuple(dict.fromkeys((*notes, *report.notes))),
            model=label_of(self._against),
            format=self.target.name,
            artifact=self._path.name,
            precision=self._precision,
            versions={**here, **(known or {})},
        )


def label_of(source: Any) -> str:
    """What a report calls a model: the file's name, or the module's class."""
    return Path(source).name if isinstance(source, (str, Path)) else type(source).__name__


def load(artifact: str | Path, device: str | None = None, *, trust: bool = False) -> Session:
    """Open an artifact with the runtime of its format; close it, or use it as a context manager.

    Args:
        trust: let a format that is native code (AOTInductor) run what is in the file.

    Raises:
        InputFileError: it is missing or unreadable, or is native code and not trusted.
        MissingRequirementError: the runtime or the device is not there.
    """
    path = Path(artifact)
    target, manifest, _ = identify(path)
    demand_trust(target, path, trust)
    return target.open(path, device or first_device(target), signature_of(manifest))
