"""Which faults the rule of parity finds, beside the rules of other tools on the same files.

    python benchmarks/parity_power.py [--jobs 2] [--sample] [--architectures lstm,unet]
        [--kept FOLDER] [--json FILE] [--missed FILE] [--write]

Every architecture (benchmarks/power/architectures.py, random weights) is exported to ONNX. Faults
of many kinds are put into the written bytes (benchmarks/power/faults), one to a file, and the file
is judged by Isomorph and by the fixed tolerances of other tools, which get what they get: one
random input, and eager's output on it. A fault's size is how far it moves the values of the graph
in float64 (benchmarks/power/exact), in noise floors, at the output and case of usual values where
that is most. Correct artifacts of several runtimes, and eager called in other ways, count false
alarms. A sample of detected faults is localised.

`--kept` remembers finished architectures in a folder, so that a run that was stopped goes on; give
another folder after a change of the code.
`--write` puts the tables into docs/parity.md. Needs torchvision, timm, transformers, and openvino
and coremltools for their rows.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from power.architectures import ARCHITECTURES
from power.results import Result
from power.table import missed, put_into, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "parity.md"
SAMPLE = ("gru", "token_encoder", "pooling", "mixer")
_PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "coremltools", "timm", "torchvision")


def one(name: str, sample: bool, kept: Path | None) -> Result:
    """One architecture, in this process; taken from `kept` where it was finished before."""
    import torch
    from power.study import Extent, study

    known = kept / f"{name}.json" if kept else None
    if known and known.is_file():
        return Result.from_json(json.loads(known.read_text(encoding="utf-8")))
    torch.set_num_threads(1)
    extent = Extent(places=1, graded=2, locate=2, formats=()) if sample else Extent()
    found = study(name, extent)
    if known:
        part = known.with_suffix(".part")
        part.write_text(json.dumps(found.to_json()), encoding="utf-8")
        part.replace(known)
    return found


def run(names: Sequence[str], jobs: int, sample: bool, kept: Path | None) -> Iterator[Result]:
    """Every architecture, as they get ready."""
    work = partial(one, sample=sample, kept=kept)
    if jobs == 1:
        yield from map(work, names)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(work, names)


def stack() -> str:
    """The date and the versions."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES]
    return f"{datetime.now(timezone.utc):%Y-%m-%d} with {', '.join(versions)}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES))
    parser.add_argument("--sample", action="store_true", help="four small ones, fewer faults")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, help="folder that remembers finished architectures")
    parser.add_argument("--json", type=Path, help="write every row there")
    parser.add_argument("--missed", type=Path, help="write missed faults of the tuning half there")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/parity.md")
    given = parser.parse_args(argv)
    names = list(SAMPLE) if given.sample else given.architectures.split(",")
    unknown = [name for name in names if name not in ARCHITECTURES]
    if unknown:
        parser.error(f"unknown architectures: {', '.join(unknown)}")
    if given.kept:
        given.kept.mkdir(parents=True, exist_ok=True)
    start, results = time.perf_counter(), []
    for result in run(names, given.jobs, given.sample, given.kept):
        results.append(result)
        told = f"{len(results)}/{len(names)} {result.architecture}: {result.seconds:.0f} s"
        print(f"{told}, {len(result.faults)} faults", file=sys.stderr, flush=True)
    results.sort(key=lambda result: names.index(result.architecture))
    how = "--sample" if given.sample else "--write"
    text = table(results, f"python benchmarks/parity_power.py {how}", stack())
    print(text)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    if given.json:
        document = [result.to_json() for result in results]
        given.json.write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
    if given.missed:
        given.missed.write_text(missed(results) + "\n", encoding="utf-8")
    if given.write:
        put_into(PAGE, text)


if __name__ == "__main__":
    main()
