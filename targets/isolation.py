"""A target in a process of its own: a crash in native code is then a message.

`IsolatedTarget` wraps any target that the registry knows by name. The child
(`targets/worker.py`) gets the graph as a file, and answers requests over a pipe; it
prints into the log. The check of an artifact stays in the parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..chatter import log_descriptor
from ..errors import ConversionError
from .base import Artifact, Capability, Evidence, Signature, Target, Unsupported
from .closing import Closing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..exporter.graph import Graph
    from ..exporter.signature import TensorSpec

__all__ = ["IsolatedTarget"]


class _Child:
    """A worker process, and the pipe to it."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._pipe, theirs = Pipe()
        log = log_descriptor()
        worker = ["-m", "isomorph.targets.worker", str(theirs.fileno()), str(os.getpid())]
        self._process = subprocess.Popen(
            [sys.executable, *worker],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if log is None else log,
            stderr=None if log is None else log,
        )
        theirs.close()
        self._idle = True

    def ask(self, method: str, *arguments: Any, **named: str) -> Any:
        """Let the worker do something; its error is raised here.

        Raises:
            ConversionError: the process died.
        """
        self._idle = False
        try:
            self._pipe.send((method, self._target, arguments, named))
            outcome, value = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise self._death(method) from error
        self._idle = True
        if outcome == "error":
            raise value
        return value

    def close(self) -> None:
        """End the process; one that still works was interrupted, and is not waited for."""
        self._pipe.close()
        if not self._idle:
            self._process.kill()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _death(self, doing: str) -> ConversionError:
        code = self._process.wait()
        how = f"with code {code}"
        if code < 0:
            how = f"by signal {signal.Signals(-code).name}"
        return ConversionError(
            f"the {self._target} process ended {how} during {doing}: its native code crashed",
            hint="-v shows what it printed last; another version of its packages may help",
        )


class IsolatedTarget:
    """`target` with its conversion and its sessions in child processes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.name = target.name
        # What the registry knows it by, which differs for packages that are built on the device.
        self._key: str = getattr(target, "key", target.name)
        self.golden: bool = getattr(target, "golden", False)
        self.suffix = target.suffix
        self.extra = target.extra
        self.options_type = target.options_type
        self.precisions = target.precisions

    def files(self, stem: str) -> tuple[str, ...]:
        return self._target.files(stem)

    def capability(self) -> Capability:
        return self._target.capability()

    def check(self, graph: Graph) -> list[Unsupported]:
        with tempfile.TemporaryDirectory(prefix="isomorph-") as folder:
            found: list[Unsupported] = self._once("check", _saved(graph, Path(folder)))
        return found

    def convert(self, graph: Graph, options: Any, directory: Path, stem: str) -> Artifact:
        # Beside the artifact, where there is room for the weights: /tmp may be small memory.
        with tempfile.TemporaryDirectory(prefix=".graph-", dir=directory) as folder:
            saved = _saved(graph, Path(folder))
            artifact: Artifact = self._once("convert", saved, options, directory, stem)
        return artifact

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> _IsolatedSession:
        child = _Child(self._key)
        try:
            described = child.ask("open", artifact, device, signature)
        except BaseException:
            child.close()
            raise
        return _IsolatedSession(child, *described)

    def _once(self, method: str, *arguments: Any) -> Any:
        child = _Child(self._key)
        try:
            return child.ask(method, *arguments)
        finally:
            child.close()


class _IsolatedSession(Closing):
    """A session that runs in a child process."""

    def __init__(
        self,
        child: _Child,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        evidence: Evidence,
        readings: tuple[str, ...],
    ) -> None:
        self._child = child
        self.inputs = inputs
        self.outputs = outputs
        self.evidence = evidence
        self.readings = readings

    def run(self, inputs: Mapping[str, NDArray[Any]], **how: str) -> dict[str, NDArray[Any]]:
        outputs: dict[str, NDArray[Any]] = self._child.ask("run", dict(inputs), **how)
        return outputs

    def close(self) -> None:
        self._child.close()


def _saved(graph: Graph, folder: Path) -> str:
    from ..exporter.flattening import flat_graph

    return str(flat_graph(graph).save(folder / "model.graph.pt2"))
