"""What checks do in a process of their own: fresh modules, another hash seed, or danger of a crash.

Each task appends a JSON line to the `results` file as soon as it knows something.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .locating import found

__all__ = ["main"]


def main(request: str) -> None:
    """Do the task that the JSON file `request` describes."""
    task = json.loads(Path(request).read_text())
    with Path(task["results"]).open("w") as results:
        for line in _TASKS[task["do"]](task):
            results.write(json.dumps(line) + "\n")
            results.flush()


def _capability(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Modules of other packages that finding the target and asking for its capability imports."""
    before = set(sys.modules)
    target = found(task["target"])
    defined = set(sys.modules)
    target.capability()
    own = {"isomorph", type(target).__module__.partition(".")[0], *sys.stdlib_module_names}
    # What stands in the same file as a target under test is not the target's doing.
    since = before if "name" in task["target"] else defined
    tops = {name.partition(".")[0] for name in set(sys.modules) - since}
    yield {"imported": sorted(top for top in tops - own if not top.startswith("_"))}


def _convert(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Write a model's artifact."""
    from ..options import build_options
    from . import models

    target = found(task["target"])
    graph = models.lowered(task["model"], task["precision"], dynamic=task["dynamic"])
    options = build_options(target.options_type, task["options"])
    artifact = target.convert(graph, options, Path(task["directory"]), task["stem"])
    yield {"written": sorted(path.name for path in artifact.files)}


def _open(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Open each file of `paths`: the error's type and message, or that it opened."""
    from ...exporter.signature import TensorSpec
    from ..base import Signature

    target = found(task["target"])
    inputs, outputs = (
        tuple(TensorSpec.from_json(spec) for spec in task[key]) for key in ("inputs", "outputs")
    )
    for path in task["paths"]:
        try:
            with target.open(Path(path), task["device"], Signature(inputs, outputs)):
                yield {"path": path, "error": None}
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            yield {"path": path, "error": type(error).__name__, "message": str(error)[:500]}


_TASKS: dict[str, Callable[[dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "capability": _capability,
    "convert": _convert,
    "open": _open,
}
