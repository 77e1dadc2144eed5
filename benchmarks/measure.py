"""Run a command and sample its process tree: wall time and peak anonymous memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Issue: "sampled every 10 ms or finer". Reading /proc for one process takes well below 1 ms.
INTERVAL_S = 0.005


@dataclass(frozen=True)
class Measured:
    """Wall time in seconds, peak anonymous memory in bytes, exit code, end of the output."""

    seconds: float
    peak_anonymous: int
    code: int
    output: str


def measure(command: Sequence[str], folder: Path, *, warm: Sequence[Path] = ()) -> Measured:
    """Run `command` in `folder` and sample it until it ends.

    Args:
        command: program and arguments.
        folder: working directory.
        warm: files to read once before, so that both sides find them in the page cache.
    """
    for path in warm:
        _touch(path)
    with (folder / "output.log").open("w+") as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(_anonymous(pid) for pid in _tree(process.pid)))
            time.sleep(INTERVAL_S)
        seconds = time.perf_counter() - start
        log.seek(0)
        output = log.read()[-2000:]
    return Measured(seconds, peak, process.returncode, output)


def _touch(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def _tree(pid: int) -> list[int]:
    pids = [pid]
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        for task in tasks:
            children = (task / "children").read_text().split()
            for child in children:
                pids += _tree(int(child))
    except OSError:
        pass
    return pids


def _anonymous(pid: int) -> int:
    """RssAnon: resident memory that no file backs (heap and stacks, not mapped weights)."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
