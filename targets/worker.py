"""The child process of `targets.isolation`: `python -m isomorph.targets.worker FD PARENT`.

Reads `(method, target name, arguments, named arguments)` from the pipe with descriptor FD and
answers `("value", result)` or `("error", IsomorphError)` until the pipe closes. Only
the parent that started this process holds the other end, so pickles are safe here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import IsomorphError
from . import registry
from .base import Artifact, Session, Signature, Unsupported
from .contract import told_of

__all__ = ["main"]


class _Worker:
    def __init__(self) -> None:
        self._session: Session | None = None

    def check(self, target: str, graph: str) -> list[Unsupported]:
        from ..exporter.graph import Graph

        return registry.get(target).check(Graph.load(graph))

    def convert(
        self, target: str, graph: str, options: Any, directory: Path, stem: str
    ) -> Artifact:
        from ..exporter.graph import Graph

        return registry.get(target).convert(Graph.load(graph), options, directory, stem)

    def open(self, target: str, artifact: Path, device: str, signature: Signature | None) -> Any:
        self._session = registry.get(target).open(artifact, device, signature)
        self._session.__enter__()
        readings: tuple[str, ...] = tuple(getattr(self._session, "readings", ()))
        return self._session.inputs, self._session.outputs, self._session.evidence, readings

    def run(self, _target: str, inputs: dict[str, Any], **how: str) -> dict[str, Any]:
        if self._session is None:
            raise IsomorphError("the worker was asked to run before it opened an artifact")
        return self._session.run(inputs, **how)

    def close(self) -> None:
        if self._session is not None:
            self._session.__exit__(None, None, None)


def main(descriptor: int, parent: int) -> None:
    """Serve requests until the parent closes the pipe."""
    # Ctrl-C reaches the whole process group; the parent decides, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, args=(parent,), daemon=True).start()
    worker = _Worker()
    with Connection(descriptor) as pipe:
        while True:
            try:
                method, target, arguments, named = pipe.recv()
            except EOFError:
                break
            try:
                answer = ("value", getattr(worker, method)(target, *arguments, **named))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the parent tells it
                answer = ("error", _portable(told_of(error, target)))
            pipe.send(answer)
    worker.close()


def _follow_parent(parent: int) -> None:
    """A parent that was killed closes the pipe, which a worker that converts does not look at."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _portable(error: IsomorphError) -> IsomorphError:
    """An equal error whose cause, which may not pickle, stays here."""
    return type(error)(error.message, hint=error.hint)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
