"""The noise floor on another device: eager's there, beside what it is on the CPU.

The truth stays what float64 gives on the CPU. A GPU adds in other orders than a CPU and has other
kernels, so eager runs there too, case by case, and how far it is from the truth becomes one more
lane of the floor. How far the two eagers are apart is told in the report.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import IsomorphError, MissingRequirementError, first_line
from ..progress import Progress, Silent
from ..targets.base import Evidence
from ..targets.tensors import exact_float32
from ..targets.tf32 import allowing_tf32
from .arrays import to_numpy
from .compare import errors_of
from .detections import Rows, absorb
from .expected import Expected, Reference
from .findings import report_of
from .judging import Problem, judge_runs
from .report.model import EagerDifference, Report
from .sequences import unstable_elements

if TYPE_CHECKING:
    from ..exporter.graph import Graph
    from ..targets.base import Target
    from .cases import Case

__all__ = ["TF32_NOTE", "DeviceReference", "not_run", "on_device", "run_eager_on", "torch_device"]

Arrays = dict[str, NDArray[Any]]

TF32_NOTE = (
    "TF32 was left on: float32 products on the GPU keep 10 bits of each factor's 23, in the "
    "artifact and in the eager model that gives the floor"
)


@dataclass(frozen=True)
class DeviceReference:
    """A reference for one device, and what eager does there."""

    reference: Reference
    difference: tuple[EagerDifference, ...] = ()
    notes: tuple[str, ...] = ()

    def complete(self, report: Report) -> Report:
        """The report with what eager does on its device."""
        notes = tuple(dict.fromkeys((*report.notes, *self.notes)))
        return replace(report, eager_difference=self.difference, notes=notes)


def torch_device(device: str) -> str | None:
    """What torch calls a device of a format, where it is another than the CPU; else None."""
    kind = device.partition(":")[0].lower()
    return device.lower() if kind == "cuda" else None


@contextmanager
def run_eager_on(device: str, module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A copy of `module` on `device`; the weights of `module`, which may be mapped, stay.

    Raises:
        MissingRequirementError: this torch has no such device.
    """
    if not torch.cuda.is_available():
        raise MissingRequirementError(f"torch {torch.__version__} finds no GPU here")
    # What deepcopy finds here it does not copy: no second copy of the weights in this machine's
    # memory, and tensors that are shared stay shared.
    copies: dict[int, Any] = {}
    with torch.no_grad():
        for parameter in module.parameters():
            there = torch.nn.Parameter(moved(parameter, device), requires_grad=False)
            copies[id(parameter)] = there
        for buffer in module.buffers():
            copies[id(buffer)] = moved(buffer, device)
        yield copy.deepcopy(module, copies).to(device).eval()


def moved(value: torch.Tensor, device: str) -> torch.Tensor:
    """`value` on `device`, with the strides that it has."""
    return value.to(device)


def on_device(
    found: Reference,
    graph: Graph,
    module: torch.nn.Module,
    device: str,
    *,
    tf32: bool = False,
    progress: Progress | None = None,
) -> DeviceReference:
    """`found` with eager's floor on `device`; `found` itself where torch does not run there.

    Args:
        found: the reference made on the CPU.
        graph: names and calls the module.
        module: the user's module, on the CPU; it is copied.
        device: as a format calls it; torch knows `cuda` and `cuda:N`.
        tf32: leave TF32 on, in eager as in the artifact.
    """
    if device.partition(":")[0].lower() == "cpu":
        return DeviceReference(found)
    notes = (TF32_NOTE,) if tf32 else ()
    name = torch_device(device)
    if name is None:
        why = f"torch does not run on {device}: the floor is that of eager on the CPU"
        return DeviceReference(found, notes=(*notes, why))
    if found.random:
        return DeviceReference(found, notes=notes)
    try:
        with (
            allowing_tf32(tf32),
            exact_float32(),
            run_eager_on(name, module) as there,
            (progress or Silent()).stage(f"eager on {device}", len(found.cases)) as step,
        ):
            known = _DeviceRun(found, graph, module, there, name)
            findings = judge_runs(graph.outputs, found, found.cases, known.run, done=step.advance)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything there
        what = error.message if isinstance(error, IsomorphError) else first_line(error)
        why = f"eager does not run on {device} ({what}): the floor is that of eager on the CPU"
        return DeviceReference(found, notes=(*notes, why))
    there_report = report_of(
        graph.outputs, found, Evidence("executed", "torch", "", name), findings
    )
    difference = tuple(
        EagerDifference(
            output=output.name,
            peak_ratio=output.peak_ratio,
            rms_ratio=output.rms_ratio,
            max_abs=known.apart.get(output.name),
            mismatches=output.mismatches,
            worst_case=output.worst_case,
        )
        for output in there_report.outputs
    )
    return DeviceReference(known.reference(), difference, (*notes, _told(there_report, device)))


def _told(report: Report, device: str) -> str:
    """How far eager is from the truth on the device, in floors of the CPU."""
    if report.verdict == "fail":
        return (
            f"the eager model itself differs on {device} from what it computes on the CPU: "
            f"{report.reason}; the floor here is eager's on {device}"
        )
    return f"eager on {device}, in noise floors of the CPU: {report.reason}"


@dataclass
class _DeviceRun:
    """Runs eager on the device, and keeps how far it is from the truth and from the CPU."""

    found: Reference
    graph: Graph
    here: torch.nn.Module
    there: torch.nn.Module
    device: str
    apart: dict[str, float] = field(default_factory=dict)
    lanes: dict[str, dict[str, Expected]] = field(default_factory=dict)
    rows: dict[str, dict[str, Rows]] = field(default_factory=dict)

    def run(self, case: Case, _reading: str) -> tuple[Arrays | None, Problem | None]:
        inputs = {name: moved(value, self.device) for name, value in case.inputs.items()}
        values = _arrays(self.graph.call.call(self.there, inputs))
        if case.name not in self.lanes:
            plain = _arrays(self.graph.call.call(self.here, case.inputs))
            known = self.found.expected[case.name]
            (there, here), self.rows[case.name] = absorb(
                self.found.detections,
                {name: expected.truth for name, expected in known.items()},
                [values, plain],
                self.found.rows.get(case.name, {}),
            )
            self.lanes[case.name] = {
                name: self._widened(name, expected, there[name], here[name])
                for name, expected in known.items()
            }
        return values, None

    def _widened(
        self, name: str, expected: Expected, value: NDArray[Any], plain: NDArray[Any]
    ) -> Expected:
        """`expected` with one more lane, or with what the device decides otherwise."""
        if value.shape != expected.shape:
            raise ValueError(f"{name} is {list(value.shape)} there, {list(expected.shape)} here")
        if expected.unstable is not None:
            unstable = expected.unstable | unstable_elements(expected.truth, [value])
            return replace(expected, unstable=unstable)
        self.apart[name] = max(self.apart.get(name, 0.0), errors_of(value, plain).peak)
        noise = expected.noise
        lanes = (*noise.lanes, errors_of(value, expected.truth))
        return replace(expected, noise=replace(noise, lanes=lanes))

    def reference(self) -> Reference:
        return replace(self.found, expected=self.lanes, rows=self.rows)


def _arrays(values: Mapping[str, torch.Tensor]) -> Arrays:
    return {name: np.array(to_numpy(value), copy=True) for name, value in values.items()}


def not_run(graph: Graph, target: Target, device: str, error: MissingRequirementError) -> Report:
    """The report on a device that is not here: never a pass, and it says what is missing."""
    from .parity import unverified

    capability = target.capability()
    evidence = Evidence("built", capability.package or target.name, "not run", device)
    hint = f" ({error.hint})" if error.hint else ""
    return unverified(graph, evidence, f"not run on {device}: {error.message}{hint}")
