"""The whole way: checkpoint -> Graph -> for each target convert, open, check, write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..chatter import muffled
from ..errors import (
    IsomorphError,
    UnprovenError,
    UsageError,
)
from ..progress import Progress, Silent
from ..publishing import Staging, destination_errors
from ..targets import registry
from ..targets.base import PRECISIONS
from ..targets.contract import demand_contract, told_of
from ..validation.inputs.budget import check_budget
from .clock import Clock
from .fallback import told_of_fallbacks
from .planning import Plan, make_plans, protect
from .proving import Proof
from .records import build_manifest, stale_files
from .requirements import check_require, demand_evidence
from .result import ExportedArtifact, ExportResult
from .source import Request, Source, in_eval_mode, open_source, sample_entries

if TYPE_CHECKING:
    import torch

    from ..targets.base import Artifact, Evidence
    from ..validation.report import Report
    from .graph import Graph

__all__ = ["export"]


def export(
    source: str | Path | torch.nn.Module,
    format: str | Sequence[str] = "onnx",
    *,
    model: str | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str | Path] | str | Path | None = None,
    dynamic: Mapping[str, str] | None = None,
    output: str | Path | None = None,
    precision: str = "fp32",
    devices: Sequence[str] | None = None,
    data: Sequence[str | Path | Mapping[str, Any]] | None = None,
    budget: float | None = None,
    options: Mapping[str, Any] | None = None,
    validate: bool = True,
    require: str | None = None,
    tf32: bool = False,
    isolate: bool = False,
    defer: bool = False,
    trust: bool = False,
    allow: Sequence[str] = (),
    progress: Progress | None = None,
) -> ExportResult:
    """Export a model and prove that each artifact computes what the model computes.

    Args:
        source: a checkpoint's path, or a module.
        format: one target's name or several.
        model: how to build the module a state_dict belongs to: `package.module:callable`,
            `file.py:callable`, `torchvision:NAME` or `timm:NAME`.
        args: example arguments, tensors and structures of tensors.
        kwargs: example keyword arguments.
        inputs: instead of `args`: tensors by name, a tensor file, or `--input` texts.
        dynamic: axes that stay free, such as `{"x.0": "batch:1..16"}`.
        output: the artifact's path; with several formats, a directory. Default: beside the
            source.
        precision: "fp32", or "fp16" or "bf16" for weights and arithmetic in half where the
            target can hold it; inputs and outputs keep the model's dtypes.
        devices: where the artifact is run to check it; None: on the first device that each format
            has on this machine. Of several, one that is not here is reported as not run.
        data: further samples to check with: tensor files or mappings.
        budget: seconds, as estimated from the graph, that the inputs tried may take; None: 5. One
            of each kind is tried always.
        options: the target's options; with several formats, a mapping of them by format.
        validate: False writes without checking; the verdict is then "unverified".
        require: "executed" or "evaluated": the least evidence to accept, on every device.
        tf32: let float32 products on a GPU round their factors to 10 bits while they are checked.
        isolate: convert and run each format in a process of its own, so that a crash in
            native code is an error of that format.
        defer: for formats that are built on the device (tensorrt): write a package that builds
            the engine there and checks it, instead of the engine.
        trust: unpickle freely and load native code.
        allow: classes that a pickled module may name besides the built-in list.
        progress: told about stages; silent by default.

    Returns:
        One entry per format. A failed parity is a verdict, not an exception: see
        `ExportResult.raise_for_verdict`. With several formats one that cannot be made is an
        entry with an error; with one format its error is raised.

    Raises:
        IsomorphError: see errors.py; nothing is left half-written.
    """
    formats = [format] if isinstance(format, str) else list(format)
    _check_request(formats, precision, require, validate, defer)
    seconds = check_budget(budget)
    clock = Clock(progress or Silent())
    request = Request(model, tuple(args), kwargs, inputs, dynamic, trust, tuple(allow))
    plans = make_plans(
        source, formats, output, options, precision, devices if validate else (), defer=defer
    )
    if all(plan.problem for plan in plans):
        return _refused(source, plans, clock)
    samples = sample_entries(data)
    protect(plans, [source, *request.input_files(), *samples])
    with ExitStack() as stack:
        stagings = [
            None if plan.problem else stack.enter_context(Staging(plan.destination))
            for plan in plans
        ]
        mode_notes = stack.enter_context(in_eval_mode(source))
        opened = open_source(source, request, clock)
        opened = replace(opened, notes=(*opened.notes, *mode_notes))
        run = _Run(
            opened, request, precision, samples, validate, require, clock, tf32=tf32, budget=seconds
        )
        artifacts = []
        for plan, staging in zip(plans, stagings, strict=True):
            clock.begin(plan.name if len(plans) > 1 else None)
            try:
                artifacts.append(run.make(_isolated(plan) if isolate else plan, staging))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything
                told = told_of(error, plan.name)
                if len(plans) == 1:
                    raise told from error.__cause__ if told is error else error
                artifacts.append(_failed(plan, told, clock))
    return ExportResult(_label(source), told_of_fallbacks(plans, artifacts), run.notes())


def _refused(source: Any, plans: Sequence[Plan], clock: Clock) -> ExportResult:
    """Nothing can be made here: tell so before any work."""
    problems = [plan.problem for plan in plans if plan.problem is not None]
    if len(plans) == 1:
        raise problems[0]
    entries = [_failed(p, e, clock) for p, e in zip(plans, problems, strict=True)]
    return ExportResult(_label(source), tuple(entries), ())


def _isolated(plan: Plan) -> Plan:
    from ..targets.isolation import IsolatedTarget

    return replace(plan, target=IsolatedTarget(plan.target))


def _check_request(
    formats: Sequence[str], precision: str, require: str | None, validate: bool, defer: bool
) -> None:
    if not formats:
        raise UsageError("no format is given", hint=f"choose from {', '.join(registry.names())}")
    if len(set(formats)) != len(formats):
        raise UsageError("a format is given twice")
    if precision not in PRECISIONS:
        raise UsageError(
            f"precision {precision!r} is not known", hint=f"choose {', '.join(PRECISIONS)}"
        )
    check_require(require)
    if require and not validate:
        raise UsageError("--require needs the check that --no-validate leaves out")
    if defer and not validate:
        raise UsageError(
            "--defer packs what the model computes, which only the check finds out",
            hint="leave out --no-validate",
        )


def _lowered(graph: Graph, precision: str) -> Graph:
    if precision == "fp32":
        return graph
    from .precision import lower_precision

    return lower_precision(graph, precision)


def _label(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else type(source).__name__


class _Run:
    """One export: the graph, and what all targets share of its validation."""

    def __init__(
        self,
        source: Source,
        request: Request,
        precision: str,
        data: Sequence[str | Path | Mapping[str, Any]],
        validate: bool,
        require: str | None,
        clock: Clock,
        *,
        tf32: bool = False,
        budget: float | None = None,
    ) -> None:
        self._source = source
        self._request = request
        self._validate = validate
        self._require = require
        self._clock = clock
        self._graph = _lowered(source.capture.graph, precision)
        self._proof = Proof(source, self._graph, data, clock, tf32=tf32, budget=budget)

    def notes(self) -> tuple[str, ...]:
        notes = (*self._source.notes, *self._graph.notes, *self._proof.notes)
        return tuple(dict.fromkeys(notes))

    def make(self, plan: Plan, staging: Staging | None) -> ExportedArtifact:
        """Convert, check and write one format."""
        if plan.problem is not None and (demand := getattr(plan.target, "demand", None)):
            demand(self._graph, plan.options)  # what holds on every machine is told first
        if plan.problem is not None or staging is None:
            raise plan.problem or AssertionError("a plan without a problem has a staging folder")
        artifact = self._convert(plan, staging)
        reports = self._proof.reports(plan, artifact) if self._validate else ()
        verdict = _worst(reports)
        if self._source.fingerprint is not None:
            self._source.fingerprint.demand_unchanged()
        demand_evidence(reports, self._require, plan.target.capability().remedy)
        if getattr(plan.target, "golden", False):
            from ..validation.golden import write_golden

            with destination_errors(plan.destination):
                write_golden(artifact.path, self._graph, self._proof.reference())
        with self._clock.stage("write"):
            written = self._write(plan, staging, artifact, reports, verdict)
        return replace(written, seconds=self._clock.own_seconds())

    def _convert(self, plan: Plan, staging: Staging) -> Artifact:
        from .shapes import shapes_kept

        stage = self._clock.stage("convert")
        with stage, destination_errors(plan.destination), muffled(), shapes_kept(self._graph):
            stem = plan.destination.name.removesuffix(plan.target.suffix)
            artifact = plan.target.convert(self._graph, plan.options, staging.directory, stem)
        demand_contract(plan.target, artifact, staging.directory, stem)
        return artifact

    def _write(
        self,
        plan: Plan,
        staging: Staging,
        artifact: Artifact,
        reports: tuple[Report, ...],
        verdict: str,
    ) -> ExportedArtifact:
        import json

        from ..validation.report.document import document_of

        name = plan.destination.name
        manifest = build_manifest(
            artifact,
            self._source,
            self._request,
            plan.options,
            self._graph.precision,
            reports,
            verdict,
            self.notes(),
        )
        manifest_file = staging.directory / f"{name}.manifest.json"
        report_file = staging.directory / f"{name}.report.json"
        with destination_errors(plan.destination):
            manifest.write(manifest_file)
            files = list(artifact.files)
            if reports:
                text = json.dumps(document_of(reports), indent=2) + "\n"
                report_file.write_text(text, encoding="utf-8")
                files.append(report_file)
            for report in reports:
                if report.localization is not None and report.localization.reproduction:
                    script = staging.directory / report.localization.reproduction
                    files += [f for f in (script, script.with_suffix(".npz")) if f not in files]
        files.append(manifest_file)
        if verdict == "fail":
            finals = _reject(plan, files)
        else:
            finals = staging.commit(files, stale_files(plan.target, plan.destination))
        entries = manifest.document["files"]
        return ExportedArtifact(
            format=plan.target.name,
            path=finals[artifact.files.index(artifact.path)],
            sha256=manifest.document["sha256"],
            bytes=sum(entry["bytes"] for entry in entries),
            verdict=verdict,
            evidence=_evidence(reports),
            seconds={},
            report_path=finals[files.index(report_file)] if reports else None,
            reports=reports,
            notes=(*artifact.notes, *(note for r in reports for note in r.notes)),
        )


def _reject(plan: Plan, files: Sequence[Path]) -> list[Path]:
    """Move a failed artifact to `NAME.rejected/`; an older good one stays where it is."""
    name = plan.destination.name
    rejected = plan.destination.with_name(f"{name}.rejected") / name
    with Staging(rejected) as staging:
        return staging.commit(files, stale_files(plan.target, rejected))


def _evidence(reports: Sequence[Report]) -> Evidence | None:
    """That of the first device on which the artifact was run, if it was on any."""
    ran = [report.evidence for report in reports if report.evidence.kind != "built"]
    return next(iter([*ran, *(report.evidence for report in reports)]), None)


def _worst(reports: Sequence[Report]) -> str:
    verdicts = {report.verdict for report in reports}
    if not reports:
        return "unverified"
    return next((v for v in ("fail", "unverified") if v in verdicts), "pass")


def _failed(plan: Plan, error: IsomorphError, clock: Clock) -> ExportedArtifact:
    return ExportedArtifact(
        format=plan.target.name,
        path=None,
        sha256=None,
        bytes=0,
        verdict="unverified",
        evidence=None,
        seconds=clock.own_seconds(),
        reports=error.reports if isinstance(error, UnprovenError) else (),
        error=error,
    )
