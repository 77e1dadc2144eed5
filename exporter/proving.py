"""Whether an artifact that was just written computes what the model computes.

The reference (inputs, truth, noise floor) is made once, when the first artifact is there, and
serves every format and device of an export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..chatter import muffled
from ..errors import ConversionError, InputFileError, IsomorphError, MissingRequirementError
from ..targets.base import Signature
from .clock import Clock

if TYPE_CHECKING:
    import torch

    from ..targets.base import Artifact, Session
    from ..validation.devices import DeviceReference
    from ..validation.reference import Reference
    from ..validation.report import Report
    from .graph import Graph
    from .planning import Plan
    from .source import Source

__all__ = ["Proof"]


class Proof:
    """What all formats of one export share of its validation.

    Args:
        source: the model and its capture.
        graph: the captured graph in the precision of the artifacts.
        data: the user's samples, files or arrays.
        clock: told about stages.
        tf32: let float32 products round their factors on a GPU.
        budget: seconds for the inputs tried, as estimated; None: the default.

    Raises:
        UsageError: a sample does not fit the model.
        InputFileError: a file of samples cannot be read.
    """

    def __init__(
        self,
        source: Source,
        graph: Graph,
        data: Sequence[str | Path | Mapping[str, Any]],
        clock: Clock,
        *,
        tf32: bool = False,
        budget: float | None = None,
    ) -> None:
        self._source = source
        self._graph = graph
        self._clock = clock
        self._tf32 = tf32
        self._budget = budget
        self._on_device: dict[str, DeviceReference] = {}
        self._found: Reference | None = None
        self._error: IsomorphError | None = None
        self._samples: Sequence[dict[str, torch.Tensor]] = ()
        self.notes: tuple[str, ...] = ()
        if data:
            from .samples import load_samples

            self._samples, notes = load_samples(data, source.capture.graph.inputs)
            self.notes = tuple(notes)

    def reports(self, plan: Plan, artifact: Artifact) -> tuple[Report, ...]:
        """A report for each device, also for one that is not here while others are."""
        from ..validation.checking import label_of
        from ..validation.devices import not_run

        reports = []
        for device in plan.devices:
            missing = plan.missing.get(device)
            try:
                if missing is not None:
                    raise missing
                report = self._check_on(device, plan, artifact)
            except MissingRequirementError as error:
                if len(plan.devices) == 1:
                    raise
                report = not_run(self._graph, plan.target, device, error)
            reports.append(
                replace(
                    report,
                    model=label_of(self._source.path or self._source.module),
                    format=plan.target.name,
                    artifact=plan.destination.name,
                    precision=self._graph.precision,
                    versions=artifact.versions,
                )
            )
        return tuple(reports)

    def _check_on(self, device: str, plan: Plan, artifact: Artifact) -> Report:
        from ..targets.tf32 import allowing_tf32
        from ..validation.localize import located
        from ..validation.parity import judge

        known = self._reference_on(device)
        with (
            allowing_tf32(self._tf32),
            muffled(),
            self._open(plan, artifact, device) as session,
        ):
            report = judge(self._graph, known.reference, session, progress=self._clock)
            return known.complete(
                located(
                    report,
                    self._graph,
                    known.reference,
                    session,
                    plan.target,
                    plan.options,
                    artifact.path,
                    reproduction=artifact.path.with_name(f"{artifact.path.name}.repro.py"),
                    progress=self._clock,
                )
            )

    def _reference_on(self, device: str) -> DeviceReference:
        from ..validation.devices import on_device

        if device not in self._on_device:
            self._on_device[device] = on_device(
                self.reference(),
                self._source.capture.graph,
                self._source.module,
                device,
                tf32=self._tf32,
                progress=self._clock,
            )
        return self._on_device[device]

    @staticmethod
    def _open(plan: Plan, artifact: Artifact, device: str) -> Session:
        try:
            return plan.target.open(
                artifact.path, device, Signature(artifact.inputs, artifact.outputs)
            )
        except InputFileError as error:  # we wrote the file, so the user has no bad one
            message = error.message.replace(str(artifact.path), plan.destination.name)
            raise ConversionError(
                f"the runtime does not load what was written: {message}",
                hint="an operator or dtype of the model may be beyond this runtime: leave out what "
                "the message names, or try another option of the format (--set)",
            ) from error

    def reference(self) -> Reference:
        """Truth and noise floor on the CPU, made when first asked for.

        Raises:
            ConversionError: the captured program does not compute what the module computes.
        """
        if self._error is not None:
            raise self._error
        if self._found is None:
            from ..validation.checking import make_reference

            try:
                self._found = make_reference(
                    self._source.capture,
                    self._source.module,
                    self._samples,
                    self._clock,
                    self._graph,
                    self._budget,
                )
            except IsomorphError as error:
                self._error = error
                raise
        return self._found
