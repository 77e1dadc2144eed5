"""Breaks an artifact in many ways and runs every command on each: a process of its own.

Run by test_broken_artifacts.py, because a runtime that crashes takes its process along. Prints
one JSON line before each command and one after it.

    python broken_artifacts.py FORMAT ARTIFACT SOURCE MODEL FOLDER
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Break = Callable[[Path], None]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def cut_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-16])


def noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(max(path.stat().st_size, 1000)))


def right_beginning(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:64] + random.Random(1).randbytes(len(content)))


def swapped(path: Path) -> None:
    """A folder in the place of a file, a file in that of a folder."""
    if path.is_dir():
        shutil.rmtree(path)
        path.write_bytes(b"this is no folder")
    else:
        path.unlink()
        path.mkdir()


def missing(path: Path) -> None:
    path.unlink()


WHOLE: tuple[Break, ...] = (empty, half, noise, right_beginning, swapped)
# Files that an artifact consists of beside its first. Weights that are other numbers are a
# fault of parity and no damage.
PARTS: dict[str, dict[str, tuple[Break, ...]]] = {
    "openvino": {"{stem}.bin": (missing, empty, half, cut_end, swapped)},
    "coreml": {
        "{name}/Manifest.json": (missing, empty, half, noise, swapped),
        "{name}/Data/com.apple.CoreML/model.mlmodel": (missing, empty, half, noise, swapped),
        "{name}/Data/com.apple.CoreML/weights/weight.bin": (missing, empty, half, noise, swapped),
    },
    "tensorrt-rtx": {
        "{stem}.rtx.onnx": (missing, empty, half, noise, swapped),
        "{stem}.rtx.json": (missing, empty, half, noise, swapped),
    },
    "onnx-external": {"{name}.data": (missing, empty, half, swapped)},
}


def damages(kind: str, name: str) -> Iterator[tuple[str, str, Break]]:
    """Label, file below the artifact's folder, and what is done to it."""
    stem = name.split(".")[0]
    if kind != "onnx-external":
        wholes = WHOLE if kind != "coreml" else (swapped,)
        for damage in wholes:
            yield f"{damage.__name__}", name, damage
    for text, parts in PARTS.get(kind, {}).items():
        part = text.format(stem=stem, name=name)
        for damage in parts:
            yield f"{Path(part).name}: {damage.__name__}", part, damage


def main(kind: str, artifact: Path, source: str, model: str, folder: Path) -> None:
    from click.testing import CliRunner
    from isomorph import load
    from isomorph.cli import cli
    from isomorph.errors import IsomorphError

    more = ["--against", source, "--model", model, "-i", "x=2x3x8x8", "--trust", "-q"]

    def opened(path: Path) -> dict[str, Any]:
        try:
            with load(path, trust=True):
                return {"code": 0, "output": ""}
        except IsomorphError as error:
            return {"code": error.exit_code, "output": f"error: {error}", "error": True}

    def command(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(cli, list(words))
        unexpected = result.exception
        if unexpected is not None and not isinstance(unexpected, SystemExit):
            return {"code": -1, "output": repr(unexpected)}
        return {"code": result.exit_code, "output": result.output}

    for number, (label, part, damage) in enumerate(damages(kind, artifact.name)):
        thorough = damage is half  # each command captures the model anew
        for told in (True, False) if thorough else (True,):
            place = folder / f"{number}-{told}"
            shutil.copytree(artifact.parent, place)
            path = place / artifact.name
            if not told:  # as if another tool had made it
                path.with_name(f"{path.name}.manifest.json").unlink()
            damage(place / part)
            report = place / "report.json"
            words = {
                "load": lambda path=path: opened(path),
                "validate": lambda path=path, report=report: command(
                    "validate", str(path), *more, "--report", f"json:{report}"
                ),
                "localize": lambda path=path: command("localize", str(path), *more),
            }
            if not thorough:
                del words["localize"]
            for name, run in words.items():
                here = {"damage": label, "manifest": told, "command": name}
                print(json.dumps({"begin": here}), flush=True)
                outcome = run()
                outcome["reported"] = codes_in(report)
                print(json.dumps({"end": here, **outcome}), flush=True)
            shutil.rmtree(place)


def codes_in(report: Path) -> list[int]:
    """Exit codes of the errors that a report tells; the report must say no more than these."""
    if not report.exists():
        return []
    document = json.loads(report.read_text())
    assert not document["reports"], document
    return [error["exit_code"] for error in document["errors"]]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]))
