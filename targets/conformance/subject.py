"""The target that is tried: found here and in other processes, and each model converted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ...errors import ConversionError, IsomorphError, UsageError
from ..base import Artifact, Session, Signature, Target
from ..options import build_options
from .locating import locate, resolve

if TYPE_CHECKING:
    from ...exporter.graph import Graph

__all__ = ["STEM", "Converted", "Subject", "died", "fail", "first_line", "limit"]

# What artifacts are called: a dot in a name has surprised many a `Path.with_suffix`.
STEM = "net.v1"


def fail(message: str) -> NoReturn:
    """End a check with a message for the target's author, and no traceback of ours."""
    raise pytest.fail.Exception(message, pytrace=False) from None


def limit(message: str) -> NoReturn:
    """End a check that a declared limit, or this machine, does not allow; pytest reports it."""
    pytest.skip(message)


def raised_at(error: BaseException) -> str:
    """Where a library's error came from, since these failures show no traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return "".join(f"\n  {Path(f.filename).name}:{f.lineno} in {f.name}" for f in frames)


def first_line(error: BaseException) -> str:
    """`TypeName: message` of an error, its first line only."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@dataclass(frozen=True)
class Converted:
    """A model as the target wrote it, in a folder of its own.

    `folder` is not the one that `convert` wrote to: artifacts move once they are written.
    `fingerprints` are the graph's, before and after.
    """

    model: str
    graph: Graph
    artifact: Artifact
    folder: Path
    fingerprints: tuple[str, str]

    @property
    def path(self) -> Path:
        """The file or folder that a user loads, where it lies now."""
        return self.folder / self.artifact.path.name

    @property
    def signature(self) -> Signature:
        return Signature(self.artifact.inputs, self.artifact.outputs)


class Subject:
    """A target with its declared limits; conversions are kept, failures too.

    Args:
        declared: what the test class names as its target.
        options: the target's options by name.
        dynamic: whether the target takes dynamic dims.
        lacks: models that it cannot take, each with the reason.
        unrun: precisions that it holds, but cannot run here, each with the reason.
        device: where sessions run.
        folder: an empty one for artifacts.
    """

    def __init__(
        self,
        declared: Any,
        options: Mapping[str, Any],
        dynamic: bool,
        lacks: Mapping[str, str],
        unrun: Mapping[str, str],
        device: str,
        folder: Path,
    ) -> None:
        self.declared = declared
        self.target: Target = resolve(declared)
        self.options = dict(options)
        self.dynamic = dynamic
        self.lacks = lacks
        self.unrun = unrun
        self.device = device
        self.folder = folder
        self.capability = self.target.capability()
        self._told: set[tuple[str, str]] = set()
        self._converted: dict[tuple[str, str], Converted | BaseException] = {}

    def graph(self, model: str, precision: str = "fp32") -> Graph:
        """The graph of a model."""
        from . import models

        return models.lowered(model, precision, dynamic=self.dynamic)

    def converted(self, model: str, precision: str = "fp32") -> Converted:
        """A model's artifact; ends the check where there is none, or the target declares so."""
        self.demand_builds()
        key = (model, precision)
        if key not in self._converted:
            try:
                self._converted[key] = self.convert(model, precision)
            except Exception as error:  # noqa: BLE001 - a target may raise anything
                self._converted[key] = error
        found = self._converted[key]
        if model in self.lacks:
            self._declared_lack(model, found)
        if isinstance(found, BaseException):
            if key in self._told:
                fail(f"the model {model!r} ({precision}) does not convert: see the first failure")
            self._told.add(key)
            own = isinstance(found, IsomorphError)
            shown = (
                f"{type(found).__name__}: {found}"
                if own
                else f"{first_line(found)}, raised at{raised_at(found)}"
            )
            dims = " (or dynamic = False)" if self.graph(model).dims else ""
            fail(
                f"convert() of the model {model!r} ({precision}) raised {shown}\n"
                f"Make it convert (isomorph/targets/conformance/models.py shows the model), or "
                f'declare the limit in the test class: lacks = {{"{model}": "why"}}{dims}'
            )
        return found

    def _declared_lack(self, model: str, found: Converted | BaseException) -> NoReturn:
        reason = self.lacks[model]
        if isinstance(found, ConversionError):
            limit(f"declared limit, refused as declared: {model}: {reason}")
        if isinstance(found, BaseException):
            fail(
                f"lacks declares the model {model!r} ({reason}), but convert() raised "
                f"{first_line(found)}\n"
                f"Raise ConversionError that names the operator, its module and its line."
            )
        fail(
            f"lacks declares the model {model!r} ({reason}), but it converts: "
            f"remove the declaration, so that the result is checked"
        )

    def convert(self, model: str, precision: str = "fp32", place: str = "") -> Converted:
        """Convert afresh and move the folder, as an export does; raises what the target raises."""
        graph = self.graph(model, precision)
        name = f"{model}-{precision}{place}"
        made = self.folder / f"{name}.made"
        made.mkdir()
        before = graph.fingerprint()
        artifact = self.target.convert(graph, self.build_options(), made, STEM)
        after = graph.fingerprint()
        folder = made.rename(self.folder / name)
        return Converted(model, graph, artifact, folder, (before, after))

    def build_options(self) -> Any:
        """The target's options with the test class's values."""
        return build_options(self.target.options_type, self.options)

    def open(self, converted: Converted, *, alone: bool = False) -> Session:
        """A session on an artifact; `alone` gives the target the file and nothing else."""
        self.demand_runs()
        signature = None if alone else converted.signature
        try:
            return self.target.open(converted.path, self.device, signature)
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            how = "the file alone (signature=None)" if alone else "its signature"
            fail(
                f"open() of the model {converted.model!r} with {how} raised {first_line(error)}\n"
                f"What convert() writes must open, also after its folder was moved."
            )

    def demand_builds(self) -> None:
        """Skip where this machine cannot build: capability() says so."""
        if not self.capability.builds:
            limit(f"{self.target.name} does not build here: {self.capability.remedy}")

    def demand_runs(self) -> None:
        """Skip where this machine cannot run what was built: capability() says so."""
        if not self.capability.runs:
            limit(f"{self.target.name} does not run here: {self.capability.remedy}")

    def elsewhere(self, task: Mapping[str, Any], **environment: str) -> list[dict[str, Any]]:
        """Do a task of `worker` in a fresh process, in a folder of its own; the lines it reports.

        Where the process dies, the last line says so.
        """
        try:
            located = locate(self.declared)
        except UsageError as error:
            fail(str(error))
        place = self.folder / f"process-{len(list(self.folder.glob('process-*')))}"
        place.mkdir()
        results = place / "results"
        request = {"target": located, "results": str(results), **task}
        (place / "request.json").write_text(json.dumps(request))
        done = subprocess.run(
            [sys.executable, "-c", _RUN_WORKER, str(place / "request.json")],
            cwd=place,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = results.read_text().splitlines() if results.exists() else []
        reports = [json.loads(line) for line in lines]
        if done.returncode:
            reports.append({"died": _death(done.returncode), "stderr": done.stderr[-2000:]})
        return reports


_RUN_WORKER = "import sys; from isomorph.targets.conformance.worker import main; main(sys.argv[1])"


def _death(code: int) -> str:
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process ended with code {code}"


def died(reports: Sequence[Mapping[str, Any]]) -> str | None:
    """How a process of `elsewhere` died; None if it did not."""
    last = reports[-1] if reports else {"died": "the process reported nothing", "stderr": ""}
    return f"{last['died']}\n{last['stderr']}" if "died" in last else None
