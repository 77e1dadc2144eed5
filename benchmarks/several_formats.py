"""One command for several formats against one command for each: whole-process wall time.

    python benchmarks/several_formats.py [--formats onnx,openvino,executorch,torchscript]
        [--model torchvision:resnet50] [--input 1x3x224x224] [--repeat 3]

Both sides run in one go, alternating, on the same checkpoint of random weights, each
with the full check. The one command loads and captures the model and measures its
noise floor once. Prints the medians and the ratio one / sum of the others.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import measure

_MAKE = """
import torch
from isomorph.exporter.architecture import build
torch.manual_seed(0)
torch.save(build({model!r}).state_dict(), {path!r})
"""


def seconds(formats: Sequence[str], model: str, shape: str, checkpoint: Path) -> float:
    """Wall time of one `isomorph export` to `formats`.

    Raises:
        SystemExit: the export failed; shows what it printed.
    """
    flags = [part for name in formats for part in ("-f", name)]
    with tempfile.TemporaryDirectory(dir=checkpoint.parent) as folder:
        done = measure(
            [
                *(sys.executable, "-m", "isomorph", "export", str(checkpoint)),
                *("--model", model, "-i", shape, *flags, "-o", f"{folder}/", "-q"),
            ],
            Path(folder),
            warm=[checkpoint],
        )
    if done.code:
        raise SystemExit(f"export to {', '.join(formats)} ended with {done.code}:\n{done.output}")
    return done.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", default="onnx,openvino,executorch,torchscript")
    parser.add_argument("--model", default="torchvision:resnet50")
    parser.add_argument("--input", default="1x3x224x224")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    formats = given.formats.split(",")
    taken: dict[str, list[float]] = {name: [] for name in [*formats, "all"]}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "model.pt"
        code = _MAKE.format(model=given.model, path=str(checkpoint))
        made = measure([sys.executable, "-c", code], Path(folder))
        if made.code:
            raise SystemExit(made.output)
        for _ in range(given.repeat):
            for name in formats:
                taken[name].append(seconds([name], given.model, given.input, checkpoint))
            taken["all"].append(seconds(formats, given.model, given.input, checkpoint))
    median = {name: statistics.median(values) for name, values in taken.items()}
    for name in formats:
        print(f"{name:<22} {median[name]:7.2f} s")
    total = sum(median[name] for name in formats)
    print(f"{'sum':<22} {total:7.2f} s")
    print(f"{'all in one command':<22} {median['all']:7.2f} s")
    print(f"{'ratio':<22} {median['all'] / total:7.2f}")


if __name__ == "__main__":
    main()
